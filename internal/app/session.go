package app

import (
	"context"
	"fmt"
	"io/fs"
	"mime"
	"os"
	"path"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// NewSession makes a session and copies the app's files into its artifacts.
func (rt *Runtime) NewSession(ctx context.Context, user, id string) (session.Key, error) {
	key := session.Key{App: rt.File.Name, User: user, ID: id}
	if _, err := rt.Store.Create(ctx, key, nil); err != nil {
		return key, err
	}
	dir := rt.File.Artifacts.Dir
	if dir == "" {
		return key, nil
	}
	root, err := os.OpenRoot(rt.File.path(dir)) // links do not lead out of it
	if err != nil {
		return key, bad(abi.ConfigInvalid, "", "%s: %v", rt.File.at("artifacts.dir"), err)
	}
	defer root.Close()
	return key, fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if err := flow.ValidArtifactName(name); err != nil {
			return bad(abi.ConfigInvalid, "rename the file", "%s: %v", rt.File.at("artifacts.dir"), err)
		}
		data, err := fs.ReadFile(root.FS(), name)
		if err != nil {
			return fmt.Errorf("artifact %s: %w", name, err)
		}
		_, err = rt.artifacts.Save(ctx, key, name, partOf(name, data))
		return err
	})
}

// partOf is a file as content: text if it is UTF-8 and its name says text.
func partOf(name string, data []byte) *genai.Part {
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) {
	case ".csv", ".txt", ".md", ".json", ".log", ".yaml", "":
		if utf8.Valid(data) {
			return genai.NewPartFromText(string(data))
		}
	}
	if kind == "" {
		kind = "application/octet-stream"
	}
	return genai.NewPartFromBytes(data, kind)
}
