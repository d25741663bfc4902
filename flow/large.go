package flow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// MaxResult is how many bytes a result may have, as JSON. Guards judge all of it. A
// longer one is an error, [abi.GuestOutputTooLarge].
const MaxResult = 16 << 20

// MaxContainers is how many objects and arrays a result may have, at all depths. Each takes hundreds of bytes
// of memory, whatever its text has, in every copy of the result that is decoded. One with more is an
// error, [abi.GuestOutputTooLarge]: what is longer belongs into an artifact.
const MaxContainers = 50_000

// MaxShown is how many bytes of a result, as JSON, a model is shown. A longer one is
// stored whole as an artifact, and the model is shown a document that says so and
// how the result begins; guards judge that document, too. Without an artifact
// service the result is an error, [abi.GuestOutputTooLarge].
const MaxShown = 1 << 20

// shownBeginning is how many bytes of a long result are shown.
const shownBeginning = 2 << 10

// keepWhole stores a judged result that is too long to show, and returns what is
// shown in its place.
func (c *call) keepWhole(doc json.RawMessage) (map[string]any, *denial) {
	if c.cfg.Artifacts == nil {
		return nil, c.tooLarge(len(doc), MaxShown, ErrNoArtifacts)
	}
	name := "results/" + newID() + ".json"
	begins := doc[:shownBeginning]
	for !utf8.Valid(begins) { // the result is valid: only its last character is cut
		begins = begins[:len(begins)-1]
	}
	shown, short, denied := c.judgeDocument(map[string]any{
		"status":    fmt.Sprintf("The result has %d bytes, which is too long to show. It is stored whole as artifact %q.", len(doc), name),
		"artifact":  name,
		"bytes":     json.Number(strconv.Itoa(len(doc))),
		"beginning": string(begins),
	}, false)
	if denied != nil {
		return nil, denied
	}
	if len(short) > MaxShown {
		return nil, c.tooLarge(len(short), MaxShown, nil)
	}
	version, err := c.cfg.Artifacts.Save(c.past, c.key, name, genai.NewPartFromBytes(doc, "application/json"))
	if err == nil {
		err = c.acts.change(func(a *session.Actions) {
			if a.ArtifactDelta == nil {
				a.ArtifactDelta = map[string]int64{}
			}
			a.ArtifactDelta[name] = version
		})
	}
	if err != nil {
		return nil, c.tooLarge(len(doc), MaxShown, err)
	}
	return shown, nil
}

// tooLarge refuses a result for its length. cause, if there is one, says why it
// cannot be kept as an artifact.
// notTooLarge refuses a result of too many bytes, objects and arrays.
func (c *call) notTooLarge(doc json.RawMessage) *denial {
	if len(doc) > MaxResult {
		return c.tooLarge(len(doc), MaxResult, nil)
	}
	if n := containers(doc); n > MaxContainers {
		return &denial{err: &CallError{Code: abi.GuestOutputTooLarge, Err: fmt.Errorf("result of tool %s: %d objects and arrays exceed limit %d", c.fc.Name, n, MaxContainers)}}
	}
	return nil
}

// containers counts the objects and arrays of a JSON text.
func containers(doc []byte) (n int) {
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '{', '[':
			n++
		case '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		}
	}
	return n
}

func (c *call) tooLarge(size, limit int, cause error) *denial {
	err := fmt.Errorf("result of tool %s: %d bytes exceed limit %d", c.fc.Name, size, limit)
	if cause != nil {
		err = fmt.Errorf("%w, and it is not kept as an artifact: %w", err, cause)
	}
	return &denial{err: &CallError{Code: abi.GuestOutputTooLarge, Err: err}}
}
