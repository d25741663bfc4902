package flowtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/session"
)

// artifactHome is the session of the tests of artifacts.
var artifactHome = session.Key{Tenant: "acme", App: "shop", User: "ada", ID: "s1"}

// TestArtifacts tests the contract of [flow.Artifacts] as subtests of t. It calls
// open for each of them; open returns an empty store for the given sessions, and
// has t close it if that is needed. Run it with the race detector.
func TestArtifacts(t *testing.T, open func(t *testing.T, sessions []session.Key) flow.Artifacts) {
	keys := []session.Key{artifactHome}
	for _, change := range []func(*session.Key){
		func(k *session.Key) { k.ID = "s2" },
		func(k *session.Key) { k.User = "bob" },
		func(k *session.Key) { k.App = "bank" },
		func(k *session.Key) { k.Tenant = "evil" },
	} {
		k := artifactHome
		change(&k)
		keys = append(keys, k)
	}
	for _, part := range []struct {
		name string
		test func(t *testing.T, a flow.Artifacts, keys []session.Key)
	}{
		{"versions", testVersions},
		{"kinds", testKinds},
		{"scopes", testArtifactScopes},
		{"refuses", testArtifactsRefuse},
		{"copies", testArtifactCopies},
		{"races", testArtifactRaces},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, open(t, keys), keys) })
	}
}

func save(t *testing.T, a flow.Artifacts, key session.Key, name string, part *genai.Part, want int64) {
	t.Helper()
	if version, err := a.Save(t.Context(), key, name, part); err != nil || version != want {
		t.Fatalf("saved %s as version %d, %v, want %d", name, version, err, want)
	}
}

// holds checks a version of an artifact, as JSON; an empty want means that there is none.
func holds(t *testing.T, a flow.Artifacts, key session.Key, name string, version int64, want string) {
	t.Helper()
	part, err := a.Load(t.Context(), key, name, version)
	if want == "" {
		if !errors.Is(err, fs.ErrNotExist) || part != nil {
			t.Errorf("version %d of %s of %+v is %+v, %v, want none", version, name, key, part, err)
		}
		return
	}
	got, err2 := json.Marshal(part)
	if err != nil || err2 != nil || string(got) != want {
		t.Errorf("version %d of %s of %+v is %.200s, %v, want %.200s", version, name, key, got, err, want)
	}
}

func lists(t *testing.T, a flow.Artifacts, key session.Key, want ...string) {
	t.Helper()
	if got, err := a.List(t.Context(), key); err != nil || !slices.Equal(got, want) {
		t.Errorf("artifacts of %+v are %q, %v, want %q", key, got, err, want)
	}
}

func testVersions(t *testing.T, a flow.Artifacts, _ []session.Key) {
	lists(t, a, artifactHome)
	save(t, a, artifactHome, "b.txt", genai.NewPartFromText("one"), 1)
	save(t, a, artifactHome, "b.txt", genai.NewPartFromText("two"), 2)
	save(t, a, artifactHome, "a/x.txt", genai.NewPartFromText("other"), 1)
	for version, want := range map[int64]string{0: `{"text":"two"}`, 1: `{"text":"one"}`, 2: `{"text":"two"}`, 3: "", -1: ""} {
		holds(t, a, artifactHome, "b.txt", version, want)
	}
	holds(t, a, artifactHome, "none.txt", 0, "")
	lists(t, a, artifactHome, "a/x.txt", "b.txt")
}

func testKinds(t *testing.T, a flow.Artifacts, _ []session.Key) {
	for i, want := range []string{
		`{"text":"ä世\u0000\u2028 \u003c\u0026\u003e"}`,
		`{"inlineData":{"data":"AP+A","mimeType":"image/png"}}`,
		`{"inlineData":{"data":"","mimeType":"text/plain"}}`,
		`{"fileData":{"fileUri":"gs://b/o","mimeType":"audio/wav"}}`,
		`{"functionResponse":{"name":"f","response":{"a":["x",{"b":true}]}}}`,
		`{}`,
	} {
		var part genai.Part
		if err := json.Unmarshal([]byte(want), &part); err != nil {
			t.Fatal(err)
		}
		given, err := json.Marshal(&part)
		if err != nil {
			t.Fatal(err)
		}
		save(t, a, artifactHome, "f", &part, int64(i)+1)
		holds(t, a, artifactHome, "f", 0, string(given))
	}
}

// A name of the user is seen in all sessions of the user in the app, and nowhere
// else; any other name in its session only.
func testArtifactScopes(t *testing.T, a flow.Artifacts, keys []session.Key) {
	save(t, a, artifactHome, "f", genai.NewPartFromText("session"), 1)
	save(t, a, artifactHome, "user:f", genai.NewPartFromText("user"), 1)
	lists(t, a, artifactHome, "f", "user:f")
	for _, key := range keys[1:] {
		holds(t, a, key, "f", 0, "")
		if sameUser := key.ID != artifactHome.ID; sameUser {
			holds(t, a, key, "user:f", 0, `{"text":"user"}`)
			lists(t, a, key, "user:f")
			save(t, a, key, "user:f", genai.NewPartFromText("from elsewhere"), 2)
			holds(t, a, artifactHome, "user:f", 0, `{"text":"from elsewhere"}`)
			continue
		}
		holds(t, a, key, "user:f", 0, "")
		lists(t, a, key)
		save(t, a, key, "user:f", genai.NewPartFromText("another"), 1)
	}
	holds(t, a, artifactHome, "user:f", 0, `{"text":"from elsewhere"}`)
}

func testArtifactsRefuse(t *testing.T, a flow.Artifacts, _ []session.Key) {
	for _, name := range []string{"", "user:", "..", "a/../b", "/a", "a//b", "a\\b", "app:a", "a\nb"} {
		if _, err := a.Save(t.Context(), artifactHome, name, genai.NewPartFromText("x")); err == nil {
			t.Errorf("an artifact may be called %q", name)
		}
	}
	if _, err := a.Save(t.Context(), artifactHome, "f", nil); err == nil {
		t.Error("an artifact may be nothing")
	}
	for _, part := range []*genai.Part{
		genai.NewPartFromText(strings.Repeat("x", session.MaxArtifact)),
		genai.NewPartFromBytes(make([]byte, session.MaxArtifact), "a/b"),
		genai.NewPartFromFunctionResponse("f", map[string]any{"a": strings.Repeat("x", session.MaxArtifact)}),
	} {
		if _, err := a.Save(t.Context(), artifactHome, "f", part); !errors.Is(err, session.ErrTooLarge) {
			t.Errorf("an artifact of more than %d bytes: %v", session.MaxArtifact, err)
		}
	}
	lists(t, a, artifactHome)
}

// What is saved or loaded belongs to the caller, who may change it.
func testArtifactCopies(t *testing.T, a flow.Artifacts, _ []session.Key) {
	parts := map[string]*genai.Part{
		"text":     genai.NewPartFromText("original"),
		"bytes":    genai.NewPartFromBytes([]byte("original"), "text/plain"),
		"response": genai.NewPartFromFunctionResponse("f", map[string]any{"a": []any{"original"}}),
	}
	edit := func(p *genai.Part) {
		p.Thought = true
		if p.Text != "" {
			p.Text = "edited"
		}
		if p.InlineData != nil {
			p.InlineData.MIMEType = "edited"
			copy(p.InlineData.Data, "edited")
		}
		if p.FunctionResponse != nil {
			p.FunctionResponse.Response["a"].([]any)[0] = "edited"
		}
	}
	for name, part := range parts {
		want, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		save(t, a, artifactHome, name, part, 1)
		edit(part)
		for range 2 {
			holds(t, a, artifactHome, name, 1, string(want))
			loaded, err := a.Load(t.Context(), artifactHome, name, 1)
			if err != nil {
				t.Fatal(err)
			}
			edit(loaded)
		}
	}
}

// Saves at the same time get different versions, without gaps.
func testArtifactRaces(t *testing.T, a flow.Artifacts, _ []session.Key) {
	const savers = 20
	var wg sync.WaitGroup
	texts := make([]string, savers+1) // by version
	for i := range savers {
		wg.Go(func() {
			text := fmt.Sprint("saver ", i)
			version, err := a.Save(t.Context(), artifactHome, "f", genai.NewPartFromText(text))
			if err != nil || version < 1 || version > savers {
				t.Errorf("saved as version %d, %v", version, err)
				return
			}
			texts[version] = text
		})
	}
	wg.Wait()
	for version, text := range texts[1:] {
		holds(t, a, artifactHome, "f", int64(version)+1, `{"text":"`+text+`"}`)
	}
}
