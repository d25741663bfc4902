package host

import "bytes"

// logs is what a guest says on its log, its standard output and its standard
// error. All three share one budget; what passes it is dropped.
type logs struct {
	use   *use
	left  int64
	lines [3][]byte // the unfinished line of each descriptor
	last  []byte    // the end of what was written to descriptors 1 and 2
}

const (
	maxLineBytes = 4 << 10 // a longer line of standard output is broken
	maxTailBytes = 2 << 10 // what a GuestError quotes
)

// writeLog writes one line to the operator's log.
func (u *use) writeLog(level, message string) *refusal {
	if no := u.permit("log", u.grants().Has("log"), u.call.Access.Log != nil); no != nil {
		return no
	}
	u.logs.line(level, message, 0)
	return nil
}

// line writes a line of which paid bytes are in the budget already.
func (l *logs) line(level, message string, paid int64) {
	message, _ = l.use.call.Access.Secrets.scrub(message)
	text := printable(message, int(l.left+paid))
	if l.left+paid <= 0 {
		return
	}
	l.left = max(0, l.left-max(0, int64(len(text))-paid))
	l.use.call.Access.Log(level, text)
}

// write takes what a guest writes to descriptor 1 or 2. Its end is kept for the
// operator; whole lines go to the log, if the guest has the grant.
func (l *logs) write(fd int, b []byte) {
	b = b[:min(int64(len(b)), l.left)]
	l.left -= int64(len(b))
	l.last = append(l.last, b...)
	if n := len(l.last) - maxTailBytes; n > 0 {
		l.last = append(l.last[:0], l.last[n:]...)
	}
	if !l.use.grants().Has("log") || l.use.call.Access.Log == nil {
		return
	}
	buf := append(l.lines[fd], b...)
	for {
		i := bytes.IndexByte(buf, '\n')
		if i < 0 && len(buf) < maxLineBytes {
			break
		}
		if i < 0 {
			i = maxLineBytes - 1
		}
		l.emit(fd, buf[:i])
		buf = buf[i+1:]
	}
	l.lines[fd] = buf
}

func (l *logs) emit(fd int, line []byte) {
	level := "info"
	if fd == 2 {
		level = "warn"
	}
	l.line(level, string(line), int64(len(line)))
}

// flush writes unfinished lines.
func (l *logs) flush() {
	for fd, line := range l.lines {
		if len(line) > 0 {
			l.emit(fd, line)
			l.lines[fd] = nil
		}
	}
}

// tail returns the end of standard output and error, as one line.
func (l *logs) tail() string {
	text, _ := l.use.call.Access.Secrets.scrub(string(bytes.TrimSpace(l.last)))
	return printable(text, maxTailBytes)
}
