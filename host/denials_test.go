package host

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

func TestDenials(t *testing.T) {
	now := time.Unix(0, 0)
	d := newDenials()
	d.now = func() time.Time { return now }
	of, from, why := Digest{9}, Digest{1}, Reason{abi.ModuleCompileTimeout, "too slow"}
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		if err := d.check(of, from); err != nil {
			t.Fatalf("time %d: %v", i, err)
		}
		if r := rejectedOf(t, d.add(of, from, why), of); r != why {
			t.Errorf("time %d: %+v", i, r)
		}
		now = now.Add(want - time.Second)
		if r := rejectedOf(t, d.check(of, from), of); r.Code != why.Code || !strings.HasSuffix(r.Text, "not tried again for 1s") {
			t.Errorf("time %d: %+v", i, r)
		}
		if err := d.check(of, Digest{2}); err != nil {
			t.Errorf("another module: %v", err)
		}
		now = now.Add(time.Second)
	}
	d.forget(from)
	if len(d.seen) != 0 {
		t.Errorf("%d are remembered", len(d.seen))
	}
	for i := range maxDenials + 100 {
		now = now.Add(time.Millisecond)
		d.add(of, Digest(binary.BigEndian.AppendUint64(make([]byte, 24), uint64(i))), why)
	}
	if len(d.seen) != maxDenials {
		t.Errorf("%d are remembered, want %d", len(d.seen), maxDenials)
	}
	if _, ok := d.seen[Digest(binary.BigEndian.AppendUint64(make([]byte, 24), 99))]; ok {
		t.Error("the newest were forgotten first")
	}
}

func rejectedOf(t *testing.T, err error, of Digest) Reason {
	t.Helper()
	reject, ok := err.(*RejectError)
	if !ok || reject.Module != of || len(reject.Reasons) != 1 {
		t.Fatalf("error %v", err)
	}
	return reject.Reasons[0]
}
