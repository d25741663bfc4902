package host

import (
	"context"
	"errors"
	"testing"

	"github.com/sandboxd/sandboxd/audit"
)

func TestLoadAuditsRefusal(t *testing.T) {
	log := audit.NewMemory()
	e, err := Open(t.Context(), Config{Audit: log})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Load(t.Context(), []byte("\x7fELF"))
	refused, ok := errors.AsType[*RejectError](err)
	if !ok {
		t.Fatalf("error %v, want a RejectError", err)
	}
	records := log.Records()
	if len(records) != 1 {
		t.Fatalf("%d records, want 1", len(records))
	}
	if r := records[0]; r.Action != "module.reject" || r.Module != refused.Module.String() || r.Decision != "deny" || r.Code != "module_malformed" {
		t.Errorf("record %+v", r)
	}
	if _, err := e.Load(t.Context(), packed(t, plain().bytes())); err != nil {
		t.Fatal(err)
	}
	if n := len(log.Records()); n != 1 {
		t.Errorf("%d records after a module that was accepted, want 1", n)
	}
}

type brokenSink struct{ err error }

func (s brokenSink) Append(context.Context, audit.Record) error { return s.err }

func TestLoadAuditFails(t *testing.T) {
	full := errors.New("disk full")
	e, err := Open(t.Context(), Config{Audit: brokenSink{full}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Load(t.Context(), nil)
	if _, ok := errors.AsType[*RejectError](err); !ok || !errors.Is(err, full) {
		t.Errorf("error %v, want a RejectError joined with %v", err, full)
	}
}
