package host

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What was recorded answers as the network did, without the values of secrets.
func TestRecorder(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "session=1")
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/json", http.StatusFound)
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"n":1.50}`)
		case "/echo":
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			fmt.Fprintf(w, "you are %s", r.Header.Get("Authorization"))
		case "/bytes":
			w.Write([]byte{0xff, 0, 1})
		}
	})
	secrets, err := NewSecrets(map[string]string{"KEY": "hunter2-hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	recorder := NewRecorder(secrets)
	if tape, err := recorder.Cassette(); tape != nil || err != nil {
		t.Errorf("before any request: %s, %v", tape, err)
	}
	recorder.wire = n.egress().wire
	m := loadGo(t)
	call := func(e *Egress) []guestReply {
		out, _ := ask(t, m, &Call{Grants: grants(t, "http GET,POST api.example.com/*", "secret use KEY at api.example.com"), Access: Access{Egress: e, Secrets: secrets}},
			"http", `{"url":"https://api.example.com/moved"}`,
			"http", `{"url":"https://api.example.com/echo","secrets":[{"secret":"KEY","header":"Authorization"}]}`,
			"http", `{"url":"https://api.example.com/bytes"}`,
			"http", "{\"method\":\"POST\",\"url\":\"https://api.example.com/nothing\"}\x00a body")
		return out
	}
	live := call(recorder.Egress())
	tape, err := recorder.Cassette()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"hunter2", "session=1"} {
		if strings.Contains(string(tape), bad) {
			t.Errorf("the cassette holds %s: %s", bad, tape)
		}
	}
	file := filepath.Join(t.TempDir(), "tape.json")
	if err := os.WriteFile(file, tape, 0o600); err != nil {
		t.Fatal(err)
	}
	played, err := OpenCassettes(file)
	if err != nil {
		t.Fatalf("%v: %s", err, tape)
	}
	texts := func(replies []guestReply) (all []string) {
		for _, r := range replies {
			all = append(all, r.Text)
		}
		return all
	}
	again := call(NewEgress(played))
	if want := []string{`{"n":1.50}`, "you are [secret KEY]", "\xff\x00\x01", ""}; !slices.Equal(texts(again), texts(live)) || texts(live)[0] != want[0] || texts(live)[1] != want[1] {
		t.Errorf("played %q, live %q, want %q", texts(again), texts(live), want)
	}
	if left := played.Unplayed(); len(left) > 0 {
		t.Errorf("never played: %q", left)
	}
}
