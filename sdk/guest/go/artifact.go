package guest

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Artifact opens the newest version of an artifact. The reader fetches at most
// abi.MaxChunk bytes (64 KiB) with one host call, the first of them here. A name
// that does not exist is an error that matches fs.ErrNotExist.
func (c *Call) Artifact(name string) (io.Reader, error) {
	a := &artifact{call: c, name: name}
	if err := a.fetch(); err != nil {
		return nil, err
	}
	return a, nil
}

// Artifacts returns the names of the artifacts that the call may read.
func (c *Call) Artifacts() ([]string, error) {
	reply, err := c.ask("artifact_list", struct{}{}, nil)
	if err != nil {
		return nil, err
	}
	var list abi.ArtifactNames
	if err := json.Unmarshal(reply, &list); err != nil {
		return nil, fmt.Errorf("artifact_list: reply: %w", err)
	}
	return list.Names, nil
}

// SaveArtifact saves data as a new version of an artifact and returns the version.
// mime is its type; "text/plain" saves text.
func (c *Call) SaveArtifact(name, mime string, data []byte) (version int64, err error) {
	reply, err := c.ask("artifact_save", abi.ArtifactSave{Name: name, Type: mime}, data)
	if err != nil {
		return 0, err
	}
	var v abi.ArtifactVersion
	if err := json.Unmarshal(reply, &v); err != nil {
		return 0, fmt.Errorf("artifact_save: reply: %w", err)
	}
	return v.Version, nil
}

type artifact struct {
	call   *Call
	name   string
	offset int64
	chunk  []byte // fetched and not yet read
	ended  bool
}

func (a *artifact) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(a.chunk) == 0 && !a.ended {
		if err := a.fetch(); err != nil {
			return 0, err
		}
	}
	if len(a.chunk) == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.chunk)
	a.chunk = a.chunk[n:]
	return n, nil
}

func (a *artifact) fetch() error {
	chunk, err := a.call.ask("artifact_read", abi.ArtifactRead{Name: a.name, Offset: a.offset}, nil)
	if err != nil {
		return err
	}
	a.chunk, a.ended = chunk, len(chunk) == 0
	a.offset += int64(len(chunk))
	return nil
}
