package capability

import "testing"

func TestWords(t *testing.T) {
	tests := []struct {
		line, want string
		wide       bool
	}{
		{"http GET api.weather.example/v1/*", "send GET requests to api.weather.example over https, port 443, paths below /v1/", false},
		{"http GET,POST,PUT **", "send GET, POST and PUT requests to any host over https, port 443, any path", true},
		{"http GET **.bank.example/pay", "send GET requests to any host below bank.example over https, port 443, path /pay", true},
		{"http GET *.bank.example/a/*/b", "send GET requests to any host directly below bank.example over https, port 443, paths like /a/*/b", false},
		{"http GET api.*.bank.example", "send GET requests to any host like api.*.bank.example over https, port 443, any path", false},
		{"http GET private http://10.1.2.3:8080", "send GET requests to 10.1.2.3 over http, port 8080, any path, at private addresses too", false},
		{"http GET private *.corp.example", "send GET requests to any host directly below corp.example over https, port 443, any path, at private addresses too", true},
		{"http GET private [fd00::1]/", "send GET requests to [fd00::1] over https, port 443, path /, at private addresses too", false},
		{"state write app:*", "change values every user of this app reads", true},
		{"state read app:price", "read the value price every user of this app reads", true},
		{"state read,write session:cart.*", "read and change values of this session named cart.*", false},
		{"state read user:unit", "read the value unit that this user's sessions share", false},
		{"state write temp:*", "change values of this run", false},
		{"artifact read *.csv", "read artifacts of this session named *.csv", false},
		{"artifact read,write *", "read and save artifacts of this session", false},
		{"artifact write user:me.png", "save the artifact me.png that this user's sessions share", false},
		{"secret use X at h.example", "have the host put X into requests to h.example; never sees it", false},
		{"secret use * at h.example", "have the host put any secret into requests to h.example; never sees it", true},
		{"secret use B_* at **.h.example", "have the host put any secret named B_* into requests to any host below h.example; never sees it", true},
		{"memory search", "search what is remembered of this user", false},
		{"kv read,write", "read and change the counters and values kept between calls", false},
		{"transfer", "hand the conversation to another agent", true},
		{"escalate", "hand control back to the agent above", true},
		{"log", "write lines to the operator's log", false},
	}
	for _, tt := range tests {
		c := mustParse(t, tt.line)
		if got := c.Words(); got != tt.want {
			t.Errorf("%q in words:\n got %s\nwant %s", tt.line, got, tt.want)
		}
		if got := c.Wide(); got != tt.wide {
			t.Errorf("%q is wide: %v, want %v", tt.line, got, tt.wide)
		}
	}
	for _, k := range kinds {
		if k.verbs == nil && mustParse(t, k.name).Words() == "" {
			t.Errorf("%s has no words", k.name)
		}
	}
}
