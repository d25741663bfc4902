package flow_test

import (
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

func TestMemoryArtifacts(t *testing.T) {
	flowtest.TestArtifacts(t, func(*testing.T, []session.Key) flow.Artifacts { return flow.NewMemoryArtifacts() })
}

// A hook that edits a request does not edit the artifact that was loaded into it.
func TestLoadedArtifactIsTheRequests(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "load_artifacts", `{"artifact_names":["f"]}`)))
	w.cfg.Artifacts = flow.NewMemoryArtifacts()
	if _, err := w.cfg.Artifacts.Save(t.Context(), home, "f", genai.NewPartFromBytes([]byte("original"), "text/plain")); err != nil {
		t.Fatal(err)
	}
	w.agent.Tools = []flow.Tool{flow.LoadArtifacts()}
	edited := 0
	w.cfg.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
		for _, c := range req.Contents {
			for _, p := range c.Parts {
				if p.InlineData != nil {
					edited += copy(p.InlineData.Data, "edited")
				}
			}
		}
		return nil, nil
	}}}
	w.say("go")
	if p, err := w.cfg.Artifacts.Load(t.Context(), home, "f", 0); err != nil || edited == 0 || string(p.InlineData.Data) != "original" {
		t.Errorf("the artifact is %+v, %v, after %d edited bytes", p, err, edited)
	}
}
