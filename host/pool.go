package host

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// instanceBytes is what an instance is counted as, beside its pages and stacks.
const instanceBytes = 128 << 10

// newPool returns a pool with bounds: what is past them is made anew when it is needed.
func newPool() pool {
	return pool{maxImages: 1000, maxImageBytes: 1 << 30, maxIdleBytes: 384 << 20, maxIdle: 2048, maxIdleTime: time.Minute}
}

// A pool keeps images, and the instances that wait for a call. It is safe for concurrent
// use. Nothing is closed while it is locked.
type pool struct {
	maxImages     int           // images, each of which has a file descriptor
	maxImageBytes int64         // memory of all images
	maxIdleBytes  int64         // of all instances that wait for a call, beside their images
	maxIdle       int           // instances that wait for a call
	maxIdleTime   time.Duration // how long one waits, at least

	mu     sync.Mutex
	images []*image // that are made
	bytes  int64    // of images
	idle   int      // instances
	kept   int64    // bytes of idle instances

	oldest, newest *instance // of idle instances
}

// image returns the image of a code for a profile, made or not. It is nil if there can be
// none. A profile more than a code may have takes the place of the one that was not used for
// longest, unless all are in use.
func (p *pool) image(c *code, of profile) *image {
	if !c.whole || c.engine.pages == nil {
		return nil
	}
	p.mu.Lock()
	img := c.images[of]
	if img != nil {
		p.mu.Unlock()
		return img
	}
	if len(c.images) == maxProfiles {
		p.mu.Unlock()
		c.engine.unpark(c) // of what then is not in use an image may go
		p.mu.Lock()
		if img = c.images[of]; img != nil {
			p.mu.Unlock()
			return img
		}
	}
	var d dropped
	if len(c.images) == maxProfiles {
		var oldest *image
		for _, other := range c.images {
			if other.users == 0 && len(other.making) == 0 && (oldest == nil || other.used.Before(oldest.used)) {
				oldest = other
			}
		}
		if oldest != nil {
			delete(c.images, oldest.profile)
			p.drop(oldest, &d)
		}
	}
	if len(c.images) < maxProfiles {
		if c.images == nil {
			c.images = map[profile]*image{}
		}
		img = &image{code: c, profile: of, making: make(chan struct{}, 1)}
		c.images[of] = img
	}
	p.mu.Unlock()
	d.close()
	return img
}

// What is dropped is to be closed when the pool is not locked any more.
type dropped struct {
	instances []*instance
	snapshots []*snapshot
}

func (d *dropped) close() {
	for _, inst := range d.instances {
		inst.close()
	}
	for _, s := range d.snapshots {
		s.close()
	}
}

// drop takes from an image, which nobody uses, what was made.
func (p *pool) drop(img *image, d *dropped) {
	i := slices.Index(p.images, img)
	if i < 0 {
		return // it is not made
	}
	for len(img.idle) > 0 {
		d.instances = append(d.instances, img.idle[0])
		p.unlink(img.idle[0])
	}
	d.snapshots = append(d.snapshots, img.memory)
	p.bytes -= int64(img.memory.size)
	img.memory, img.globals = nil, nil
	p.images = slices.Delete(p.images, i, i+1)
}

// takeIdle is take where an instance waits for a call; else it is nil, and the caller is no user.
func (p *pool) takeIdle(c *code, of profile, now time.Time) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	img := c.images[of]
	if img == nil || len(img.idle) == 0 {
		return nil
	}
	img.users++
	img.used = now
	inst := img.idle[len(img.idle)-1]
	p.unlink(inst)
	return inst
}

// forget drops all images of a code, which nobody uses.
func (p *pool) forget(c *code) {
	p.mu.Lock()
	var d dropped
	for _, img := range c.images {
		p.drop(img, &d)
	}
	clear(c.images)
	p.mu.Unlock()
	d.close()
}

// take reports whether an image is made. If so, the caller is one of its users, until it
// calls put or leave, and may have got an instance.
func (p *pool) take(img *image, now time.Time) (inst *instance, made bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if img.memory == nil {
		return nil, false
	}
	img.users++
	img.used = now
	if n := len(img.idle); n > 0 {
		inst = img.idle[n-1]
		p.unlink(inst)
	}
	return inst, true
}

// failedStart returns the error of what comes before a call, if that failed so lately that it
// is not tried again.
func (p *pool) failedStart(img *image, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := img.failed.until.Sub(now)
	if left <= 0 {
		return nil
	}
	e := *img.failed.last
	e.Detail = fmt.Sprintf("%s; failed %d times, not tried again for %v", e.Detail, img.failed.times, left.Round(time.Millisecond))
	return &e
}

// started notes how what comes before a call ended. Every failure in a row doubles the wait. That
// a caller gave up is none, and neither is one of the host's.
func (p *pool) started(img *image, err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failure, ok := errors.AsType[*GuestError](err)
	switch {
	case err == nil:
		img.failed = failedStart{}
	case ok && failure.Code != abi.Cancelled && failure.Code != abi.StorageUnavailable:
		wait := min(firstRestart<<min(img.failed.times, 16), longRestart)
		img.failed = failedStart{img.failed.times + 1, now.Add(wait), failure}
	}
}

// leave ends the use of an image.
func (p *pool) leave(img *image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	img.users--
}

// put ends the use of an instance that was set back, and keeps it, as one that waits since it says.
func (p *pool) put(inst *instance, now time.Time) {
	p.mu.Lock()
	inst.image.users--
	if inst.since.After(inst.image.used) {
		inst.image.used = inst.since
	}
	p.link(inst)
	p.mu.Unlock()
	p.trim(now)
}

// trim closes the instances that wait which are too many, too large or wait too long.
func (p *pool) trim(now time.Time) {
	p.mu.Lock()
	var closing []*instance
	for o := p.oldest; o != nil && (p.idle > p.maxIdle || p.kept > p.maxIdleBytes || now.Sub(o.since) > p.maxIdleTime); o = p.oldest {
		p.unlink(o)
		closing = append(closing, o)
	}
	p.mu.Unlock()
	for _, inst := range closing {
		inst.close()
	}
}

// made completes an image, which no one uses yet, with what was taken of an instance. Images that were not used for longest make
// room for it; if all are in use, it is not kept.
func (p *pool) made(img *image, of *instance, memory *snapshot, globals []uint64) {
	fits := func() bool { return len(p.images) < p.maxImages && p.bytes+int64(memory.size) <= p.maxImageBytes }
	p.mu.Lock()
	if !fits() {
		p.mu.Unlock()
		img.code.engine.unpark(nil)
		p.mu.Lock()
	}
	var d dropped
	for !fits() {
		var oldest *image
		for _, other := range p.images {
			if other.users == 0 && (oldest == nil || other.used.Before(oldest.used)) {
				oldest = other
			}
		}
		if oldest == nil {
			break
		}
		p.drop(oldest, &d)
	}
	if !fits() || img.code.images[img.profile] != img { // another profile took its place meanwhile
		d.snapshots = append(d.snapshots, memory)
	} else {
		img.memory, img.globals, img.before, img.used = memory, globals, of.before, time.Now()
		p.images = append(p.images, img)
		p.bytes += int64(memory.size)
	}
	p.mu.Unlock()
	d.close()
}

// close frees everything. There are no users any more.
func (p *pool) close() {
	for o := p.oldest; o != nil; o = p.oldest {
		p.unlink(o)
		o.close()
	}
	for _, img := range p.images {
		img.memory.close()
		img.memory = nil
	}
	p.images, p.bytes = nil, 0
}

// link adds an idle instance, before those that wait for less long.
func (p *pool) link(inst *instance) {
	inst.older, inst.newer = p.newest, nil
	for inst.older != nil && inst.older.since.After(inst.since) {
		inst.older, inst.newer = inst.older.older, inst.older
	}
	if inst.older != nil {
		inst.older.newer = inst
	} else {
		p.oldest = inst
	}
	if inst.newer != nil {
		inst.newer.older = inst
	} else {
		p.newest = inst
	}
	p.idle++
	p.kept += inst.kept
	idle := inst.image.idle
	at := len(idle)
	for at > 0 && idle[at-1].since.After(inst.since) {
		at--
	}
	inst.image.idle = slices.Insert(idle, at, inst)
}

// unlink removes an idle instance: the newest of its image, which a call takes, or the oldest
// of all, which is the first of its image.
func (p *pool) unlink(inst *instance) {
	if inst.older != nil {
		inst.older.newer = inst.newer
	} else {
		p.oldest = inst.newer
	}
	if inst.newer != nil {
		inst.newer.older = inst.older
	} else {
		p.newest = inst.older
	}
	inst.older, inst.newer = nil, nil
	p.idle--
	p.kept -= inst.kept
	idle := inst.image.idle
	if last := len(idle) - 1; idle[last] == inst {
		idle[last] = nil
		inst.image.idle = idle[:last]
	} else {
		inst.image.idle = slices.Delete(idle, 0, 1)
	}
}
