package host

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// WASI preview 1 as far as language runtimes need it, without any state in the
// instance: https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md.
// There are no files, sockets, arguments or variables. Descriptors 0 to 2 exist:
// 0 is at its end, 1 and 2 are the log. Functions that name a path or a socket
// are not there at all, so a module that imports one is refused.

// Error numbers of WASI.
const (
	errnoOK    = 0
	errnoBadf  = 8
	errnoInval = 28
	errnoSpipe = 70
)

const (
	maxVectors       = 1024 // vectors of one fd_write or fd_read
	maxSubscriptions = 1024 // of one poll_oneoff
)

// wasi is WASI's state in one call.
type wasi struct {
	randomness
	slept time.Duration
}

var wasiFunctions = []function{
	{"args_get", "ii:i", 0, ok},
	{"args_sizes_get", "ii:i", onMemory, noneOfThem},
	{"environ_get", "ii:i", 0, ok},
	{"environ_sizes_get", "ii:i", onMemory, noneOfThem},
	{"clock_res_get", "ii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) {
		if uint32(s[0]) > 1 {
			s[0] = errnoInval
			return
		}
		resolution := uint64(time.Millisecond)
		if s[0] == 1 {
			resolution = 1
		}
		putU64(mem, s[1], resolution)
		s[0] = errnoOK
	}},
	{"clock_time_get", "iIi:i", onMemory, func(f *frame, mem api.Memory, s []uint64) {
		now, known := f.time(uint32(s[0]))
		if !known {
			s[0] = errnoInval
			return
		}
		putU64(mem, s[2], now)
		s[0] = errnoOK
	}},
	{"poll_oneoff", "iiii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) { s[0] = f.poll(mem, s) }},
	{"sched_yield", ":i", 0, func(f *frame, _ api.Memory, s []uint64) {
		f.checkTime()
		s[0] = errnoOK
	}},
	{"proc_exit", "i:", 0, func(f *frame, _ api.Memory, s []uint64) { f.exit(uint32(s[0])) }},
	{"random_get", "ii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) {
		n := uint64(uint32(s[1]))
		f.clock.draw(n)
		f.clock.random(bytesAt(mem, uint64(uint32(s[0])), n))
		s[0] = errnoOK
	}},
	{"fd_write", "iiii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) {
		fd := uint32(s[0])
		if fd != 1 && fd != 2 {
			s[0] = errnoBadf
			return
		}
		f.checkTime()
		total := uint64(0)
		for _, v := range vectors(mem, s[1], s[2]) {
			f.logs.write(int(fd), v)
			total += uint64(len(v))
		}
		putU32(mem, s[3], uint32(total))
		s[0] = errnoOK
	}},
	{"fd_read", "iiii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) {
		if uint32(s[0]) != 0 {
			s[0] = errnoBadf
			return
		}
		putU32(mem, s[3], 0)
		s[0] = errnoOK
	}},
	{"fd_fdstat_get", "ii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) {
		fd := uint32(s[0])
		if fd > 2 {
			s[0] = errnoBadf
			return
		}
		stat := bytesAt(mem, uint64(uint32(s[1])), 24)
		clear(stat)
		const character, rightRead, rightWrite = 2, 1 << 1, 1 << 6
		stat[0] = character
		rights := uint64(rightWrite)
		if fd == 0 {
			rights = rightRead
		}
		binary.LittleEndian.PutUint64(stat[8:], rights)
		s[0] = errnoOK
	}},
	{"fd_fdstat_set_flags", "ii:i", 0, standard(errnoOK)},
	{"fd_close", "i:i", 0, standard(errnoOK)},
	{"fd_seek", "iIii:i", 0, standard(errnoSpipe)},
	{"fd_tell", "ii:i", 0, standard(errnoSpipe)},
	{"fd_filestat_get", "ii:i", 0, badFD},
	{"fd_prestat_get", "ii:i", 0, badFD},
	{"fd_prestat_dir_name", "iii:i", 0, badFD},
	{"fd_pread", "iiiIi:i", 0, badFD},
	{"fd_pwrite", "iiiIi:i", 0, badFD},
	{"fd_readdir", "iiiIi:i", 0, badFD},
	{"fd_sync", "i:i", 0, badFD},
	{"fd_datasync", "i:i", 0, badFD},
	{"fd_advise", "iIIi:i", 0, badFD},
	{"fd_allocate", "iII:i", 0, badFD},
	{"fd_filestat_set_size", "iI:i", 0, badFD},
	{"fd_filestat_set_times", "iIIi:i", 0, badFD},
	{"fd_fdstat_set_rights", "iII:i", 0, badFD},
	{"fd_renumber", "ii:i", 0, badFD},
}

// exit ends the call: a command's with its exit code, any other's as a trap.
func (f *frame) exit(code uint32) {
	if f.live && kindOf(f.call) == abi.KindTool && f.call.Export == abi.ExportStart && f.module.command {
		panic(&exited{code})
	}
	trap("exit code %d", code)
}

// An exited ends the call of a command that left with an exit code.
type exited struct{ code uint32 }

func (e *exited) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func ok(_ *frame, _ api.Memory, s []uint64) { s[0] = errnoOK }

func badFD(_ *frame, _ api.Memory, s []uint64) { s[0] = errnoBadf }

// standard answers for descriptors 0 to 2; there are no others.
func standard(errno uint64) func(*frame, api.Memory, []uint64) {
	return func(_ *frame, _ api.Memory, s []uint64) {
		if uint32(s[0]) > 2 {
			errno := uint64(errnoBadf)
			s[0] = errno
			return
		}
		s[0] = errno
	}
}

// noneOfThem answers that there are no arguments or variables.
func noneOfThem(_ *frame, mem api.Memory, s []uint64) {
	putU32(mem, s[0], 0)
	putU32(mem, s[1], 0)
	s[0] = errnoOK
}

func putU32(mem api.Memory, ptr uint64, v uint32) {
	binary.LittleEndian.PutUint32(bytesAt(mem, uint64(uint32(ptr)), 4), v)
}

func putU64(mem api.Memory, ptr, v uint64) {
	binary.LittleEndian.PutUint64(bytesAt(mem, uint64(uint32(ptr)), 8), v)
}

// vectors returns the buffers of an array of n vectors at ptr.
func vectors(mem api.Memory, ptr, n uint64) [][]byte {
	n = uint64(uint32(n))
	if n > maxVectors {
		trap("%d vectors exceed %d", n, maxVectors)
	}
	array := bytesAt(mem, uint64(uint32(ptr)), 8*n)
	all := make([][]byte, n)
	for i := range all {
		at, size := binary.LittleEndian.Uint32(array[8*i:]), binary.LittleEndian.Uint32(array[8*i+4:])
		all[i] = bytesAt(mem, uint64(at), uint64(size))
	}
	return all
}

// time returns the time of a clock in nanoseconds: 0 is the wall clock, in whole
// milliseconds, 1 the monotonic one.
func (f *frame) time(clock uint32) (uint64, bool) {
	switch clock {
	case 0:
		now := f.now
		if !f.guard && f.grants().Has("clock") {
			now = now.Add(time.Since(f.started))
		}
		return uint64(max(0, now.Truncate(time.Millisecond).UnixNano())), true
	case 1:
		// Never zero: some runtimes take that for "no clock".
		return uint64(f.monotonic()) + 1, true
	}
	return 0, false
}

// monotonic counts the time in which code of the guest ran in its instance or in that which
// its image was made of. For a guard, whose judgement repeats, a unit of its fuel is a
// nanosecond of it.
func (f *frame) monotonic() time.Duration {
	if f.guard {
		return f.instance.clock + time.Duration(f.spent()) + f.clock.slept
	}
	return f.instance.clock + time.Since(f.started)
}

// poll waits for the first of the guest's subscriptions, never past the deadline.
// A subscription to a descriptor is due at once, with an error if there is no
// such descriptor.
func (f *frame) poll(mem api.Memory, s []uint64) uint64 {
	const subscriptionSize, eventSize = 48, 32
	n := uint64(uint32(s[2]))
	if n == 0 || n > maxSubscriptions {
		return errnoInval
	}
	subscriptions := append([]byte(nil), bytesAt(mem, uint64(uint32(s[0])), n*subscriptionSize)...)
	events := bytesAt(mem, uint64(uint32(s[1])), n*eventSize)
	count := bytesAt(mem, uint64(uint32(s[3])), 4)

	type due struct {
		after time.Duration
		errno uint16
		kind  byte
	}
	all := make([]due, n)
	first := time.Duration(1<<63 - 1)
	for i := range all {
		sub := subscriptions[i*subscriptionSize:]
		d := due{kind: sub[8]}
		switch d.kind {
		case 0:
			clock := binary.LittleEndian.Uint32(sub[16:])
			timeout := binary.LittleEndian.Uint64(sub[24:])
			now, known := f.time(clock)
			switch {
			case !known:
				d.errno = errnoInval
			case binary.LittleEndian.Uint16(sub[40:])&1 != 0: // an absolute time
				timeout -= min(timeout, now)
				fallthrough
			default:
				d.after = time.Duration(min(timeout, 1<<62))
			}
		case 1, 2:
			if fd := binary.LittleEndian.Uint32(sub[16:]); fd > 2 {
				d.errno = errnoBadf
			}
		default:
			return errnoInval
		}
		all[i] = d
		first = min(first, d.after)
	}
	f.sleep(first)
	f.clock.slept += first
	fired := 0
	for i, d := range all {
		if d.after > first {
			continue
		}
		event := events[fired*eventSize : (fired+1)*eventSize]
		clear(event)
		copy(event, subscriptions[i*subscriptionSize:][:8]) // the guest's own mark
		binary.LittleEndian.PutUint16(event[8:], d.errno)
		event[10] = d.kind
		fired++
	}
	binary.LittleEndian.PutUint32(count, uint32(fired))
	return errnoOK
}

// sleep waits for d, or ends the call if its time is up before.
func (f *frame) sleep(d time.Duration) {
	f.checkTime()
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.lend().Done():
		f.checkTime()
	}
}
