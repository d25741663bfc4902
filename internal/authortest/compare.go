package authortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// compare compares how the call ended with what is wanted.
func (r *caseRun) compare(ctx context.Context) {
	w, res := r.want, r.res
	r.compareEnd()
	if w.ran != nil && *w.ran != r.ended.Ran {
		res.problem("ran", fmt.Sprint(*w.ran), fmt.Sprint(r.ended.Ran))
	}
	denied := slices.Compact(slices.Sorted(slices.Values(r.denied)))
	wanted := slices.Compact(slices.Sorted(slices.Values(w.denied)))
	if !slices.Equal(denied, wanted) {
		res.problem("denied", list(wanted), list(denied))
	}
	if w.streams {
		same := len(w.chunks) == len(r.chunks)
		for i := 0; same && i < len(w.chunks); i++ {
			same = chunk(w.chunks[i]) == r.chunks[i]
		}
		if !same {
			res.problem("chunks", text(w.chunks), list(r.chunks))
		}
	}
	for _, re := range w.logs {
		if !slices.ContainsFunc(r.logs, re.MatchString) {
			res.problem("logs", re.String(), list(r.logs))
		}
	}
	r.compareKept(ctx)
	if w.acts {
		data, err := abi.Marshal(r.acts)
		got, wrong := abi.Unmarshal(data)
		if err = errors.Join(err, wrong); err != nil {
			res.problem("actions", "", err.Error())
		} else if where, want, has := contains(w.actions, got, ""); where != "" {
			res.problem("actions "+where, want, has)
		}
	}
	if w.fuelMax > 0 && r.receipt.Fuel > w.fuelMax {
		res.problem("fuel", fmt.Sprintf("at most %d", w.fuelMax), fmt.Sprint(r.receipt.Fuel))
	}
	if w.peakMax > 0 && r.receipt.PeakBytes > w.peakMax {
		res.problem("peak bytes", fmt.Sprintf("at most %d", w.peakMax), fmt.Sprint(r.receipt.PeakBytes))
	}
	if w.hostCalls != nil && *w.hostCalls != int64(r.receipt.HostCalls) {
		res.problem("host calls", fmt.Sprint(*w.hostCalls), fmt.Sprint(r.receipt.HostCalls))
	}
	if r.ended.Ran {
		if left := r.cassettes.Unplayed(); len(left) > 0 {
			res.problem("http", "every recorded exchange", "not sent: "+list(left))
		}
	}
}

// compareEnd compares result or failure.
func (r *caseRun) compareEnd() {
	w, res := r.want, r.res
	code := w.code
	if code == "" {
		code = abi.OK
	}
	fail := ""
	if f, ok := errors.AsType[*plugins.FailError](r.ended.Err); ok {
		fail = f.Code
	}
	failed := func() string { return strings.TrimSpace(fmt.Sprintf("%s  %q", r.ended.Code, r.message())) }
	switch {
	case w.fail != "" && fail != w.fail:
		got := fmt.Sprintf("%s  %q", fail, r.message())
		if fail == "" {
			got = failed()
		}
		res.problem("fail", w.fail, got)
		return
	case r.ended.Code != code:
		what, want := "error", string(code)
		if code == abi.OK {
			what, want = "result", "any"
			if w.compared {
				want = text(w.result)
			}
		}
		got := failed()
		if r.ended.Code == abi.OK {
			got = text(r.ended.Response)
		}
		res.problem(what, want, got)
		return
	}
	if w.message != nil && !w.message.MatchString(r.message()) {
		res.problem("message", w.message.String(), r.message())
	}
	if code != abi.OK {
		return
	}
	got, err := r.result()
	if err != nil {
		res.problem("result", "", err.Error())
		return
	}
	if w.compared && text(wantResult(w.result)) != text(got) {
		res.problem("result", text(wantResult(w.result)), text(got))
	}
	if w.subset {
		if where, want, has := contains(wantResult(w.contains), got, ""); where != "" {
			res.problem("at "+where, want, has)
		}
	}
	if w.snapshot != "" {
		r.snapshot(got)
	}
}

// compareKept compares what the call left behind.
func (r *caseRun) compareKept(ctx context.Context) {
	w, res := r.want, r.res
	if len(w.state) > 0 {
		sess, err := r.store.Get(ctx, r.key)
		if err != nil {
			res.problem("state", "", err.Error())
			return
		}
		for _, key := range slices.Sorted(maps.Keys(w.state)) {
			stored, _ := stateKey(key) // checked
			got := "null"
			if v, ok := sess.State[stored]; ok {
				got = text(v)
			}
			if got != string(w.state[key]) {
				res.problem("state "+key, string(w.state[key]), got)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.kv)) {
		got, found, err := r.kv.get(ctx, key)
		if !found {
			got = []byte("null")
		}
		if err != nil || string(got) != string(w.kv[key]) {
			res.problem("kv "+key, string(w.kv[key]), string(got))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.artifacts)) {
		want, err := os.ReadFile(r.file(w.artifacts[name]))
		if err != nil {
			res.problem("artifact "+name, "", err.Error())
			continue
		}
		part, err := r.artifacts.Load(ctx, r.key, name, 0)
		if err != nil {
			res.problem("artifact "+name, fmt.Sprintf("%d bytes", len(want)), "nothing")
			continue
		}
		got := []byte(part.Text)
		if part.InlineData != nil {
			got = part.InlineData.Data
		}
		if !bytes.Equal(got, want) {
			res.problem("artifact "+name, string(want), string(got))
		}
	}
}

// chunk returns a wanted chunk as it is shown.
func chunk(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return text(v)
}

// list returns texts in one line.
func list(texts []string) string {
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, "; ")
}
