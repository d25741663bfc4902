package host

import (
	"slices"
	"sync"
	"time"
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
// none.
func (p *pool) image(c *code, of profile) *image {
	if !c.whole || c.engine.pages == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	img := c.images[of]
	if img == nil && len(c.images) < maxProfiles {
		if c.images == nil {
			c.images = map[profile]*image{}
		}
		img = &image{code: c, profile: of, making: make(chan struct{}, 1)}
		c.images[of] = img
	}
	return img
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

// leave ends the use of an image.
func (p *pool) leave(img *image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	img.users--
}

// put ends the use of an image and, if again is set, keeps an instance that was set back to it.
func (p *pool) put(img *image, inst *instance, again bool, now time.Time) {
	p.mu.Lock()
	img.users--
	var closing []*instance
	if again {
		inst.since = now
		p.link(inst)
	}
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
	p.mu.Lock()
	var closing []*instance
	var dropped []*snapshot
	fits := func() bool { return len(p.images) < p.maxImages && p.bytes+int64(memory.size) <= p.maxImageBytes }
	for !fits() {
		oldest := -1
		for i, other := range p.images {
			if other.users == 0 && (oldest < 0 || other.used.Before(p.images[oldest].used)) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		other := p.images[oldest]
		for len(other.idle) > 0 {
			closing = append(closing, other.idle[0])
			p.unlink(other.idle[0])
		}
		dropped = append(dropped, other.memory)
		p.bytes -= int64(other.memory.size)
		other.memory, other.globals = nil, nil
		p.images = slices.Delete(p.images, oldest, oldest+1)
	}
	if !fits() {
		dropped = append(dropped, memory)
	} else {
		img.memory, img.globals, img.before, img.used = memory, globals, of.before, time.Now()
		if of.linear != nil {
			img.arena = of.linear.arena
		}
		p.images = append(p.images, img)
		p.bytes += int64(memory.size)
	}
	p.mu.Unlock()
	for _, inst := range closing {
		inst.close()
	}
	for _, s := range dropped {
		s.close()
	}
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

// link adds an idle instance, as the newest.
func (p *pool) link(inst *instance) {
	inst.older, inst.newer = p.newest, nil
	if p.newest != nil {
		p.newest.newer = inst
	} else {
		p.oldest = inst
	}
	p.newest = inst
	p.idle++
	p.kept += inst.kept
	inst.image.idle = append(inst.image.idle, inst)
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
