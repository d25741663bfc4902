package host

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/cpu"
)

// A codeCache keeps native code in a directory, each entry with a MAC over the code
// and over all it depends on. The key lies beside the entries, in a file that
// nobody else may read. Entries are read whole and checked in memory, so what is
// used is what was checked. Any number of caches, in any number of processes, may
// share a directory.
type codeCache struct {
	root     *os.Root // of the entries
	key      []byte
	context  string                                             // the text of what code depends on besides the module
	tampered func(ctx context.Context, entry, why string) error // is told of every entry that is discarded
}

const (
	keyBytes   = 32
	nameDigits = 2 * sha256.Size          // of entries, and of the engine's names for them
	header     = sha256.Size + nameDigits // of an entry: MAC and name; the code follows
	unfinished = "tmp-"                   // begins the names of entries that are being written
)

// rewriterVersion names the code that changes modules before they are compiled. It
// is part of what an entry is known by.
const rewriterVersion = "meter 4"

// A codeContext is what native code depends on besides the module that it was compiled from. Code that
// was made in another one is not found.
type codeContext struct {
	engine   string // and its version
	rewriter string // likewise
	system   string // operating system and architecture
	features string // of the processor
}

// contextHere returns the context of code that is made by this process with an engine.
func contextHere(engine string) codeContext {
	return codeContext{engine, rewriterVersion, runtime.GOOS + "/" + runtime.GOARCH, fmt.Sprintf("%+v %+v", cpu.X86, cpu.ARM64)}
}

// text tells contexts apart.
func (c codeContext) text() string { return fmt.Sprintf("sandboxd native code 2 %+q", c) }

// openCodeCache opens or makes the cache in dir. What others own or may write is
// refused, and so is a link: whoever can write native code owns the process. Code of
// other contexts than of is not seen, and stays.
func openCodeCache(dir string, of codeContext, tampered func(ctx context.Context, entry, why string) error) (*codeCache, error) {
	outer, err := openPrivate(dir)
	if err != nil {
		return nil, err
	}
	defer outer.Close()
	c := &codeCache{context: of.text(), tampered: tampered}
	if c.key, err = readKey(outer); err != nil {
		return nil, err
	}
	if c.root, err = openPrivate(filepath.Join(dir, "native")); err != nil {
		return nil, err
	}
	if err := c.sweep(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// openPrivate opens a directory that is nobody else's, and makes it if need be.
func openPrivate(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	before, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%s is a link or a file, not a directory", dir)
	}
	if err := private(dir, before, false); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	// The directory that was looked at is the one that was opened, and stays it.
	now, err := root.Stat(".")
	if err == nil && !os.SameFile(before, now) {
		err = fmt.Errorf("%s changed while it was opened", dir)
	}
	if err == nil {
		err = root.Chmod(".", 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// readKey reads the key, and makes it where there is none. Of several that make
// one at the same time, the first wins.
func readKey(root *os.Root) ([]byte, error) {
	const name = "key"
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, keyBytes)
		rand.Read(fresh)
		temp, err := writeNew(root, fresh)
		if err != nil {
			return nil, err
		}
		err = root.Link(temp, name)
		root.Remove(temp)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		info, err = root.Lstat(name)
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	full := filepath.Join(root.Name(), name)
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", full)
	}
	if err := private(full, info, true); err != nil {
		return nil, err
	}
	key, err := root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(key) != keyBytes {
		return nil, fmt.Errorf("%s has %d bytes, want %d", full, len(key), keyBytes)
	}
	return key, nil
}

// writeNew writes a file of an unused name, durably, and returns the name.
func writeNew(root *os.Root, parts ...[]byte) (string, error) {
	name := unfinished + rand.Text()
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	for _, p := range parts {
		if err == nil {
			_, err = f.Write(p)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		root.Remove(name)
		return "", err
	}
	return name, nil
}

func (c *codeCache) close() error { return c.root.Close() }

// sweep discards what is no entry, and what writers left behind that ended.
func (c *codeCache) sweep() error {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if isEntryName(name) && e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // renamed meanwhile
		} else if err != nil {
			return err
		}
		if strings.HasPrefix(name, unfinished) && info.Mode().IsRegular() {
			if time.Since(info.ModTime()) > time.Hour {
				c.root.Remove(name)
			}
			continue
		}
		if err := c.discard(context.Background(), name, "is not an entry"); err != nil {
			return err
		}
	}
	return nil
}

func isEntryName(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == nameDigits && strings.ToLower(name) == name
}

// entry returns the name of a module's entry, which differs for everything the code
// depends on.
func (c *codeCache) entry(d Digest) string {
	sum := sha256.Sum256([]byte(c.context + "\n" + d.String()))
	return hex.EncodeToString(sum[:])
}

// mac binds code to the module it was compiled from, and to the name that the
// engine knows it by.
func (c *codeCache) mac(d Digest, name string, code []byte) []byte {
	m := hmac.New(sha256.New, c.key)
	fmt.Fprintf(m, "%d\n%s\n%s\n%s\n", len(c.context), c.context, d, name)
	m.Write(code)
	return m.Sum(nil)
}

// get returns the code of a module, or none if there is none that can be trusted.
func (c *codeCache) get(ctx context.Context, d Digest) (n native, ok bool, err error) {
	entry := c.entry(d)
	info, err := c.root.Lstat(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return n, false, nil
	} else if err != nil {
		return n, false, err
	}
	if !info.Mode().IsRegular() || info.Size() > header+maxNativeBytes {
		return n, false, c.discard(ctx, entry, "is not a file of an entry's size")
	}
	f, err := c.root.Open(entry)
	if err != nil {
		return n, false, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, header+maxNativeBytes))
	if err != nil {
		return n, false, err
	}
	if len(data) < header {
		return n, false, c.discard(ctx, entry, "is cut off")
	}
	n = native{name: string(data[sha256.Size:header]), code: data[header:]}
	if !hmac.Equal(data[:sha256.Size], c.mac(d, n.name, n.code)) || !isEntryName(n.name) {
		return native{}, false, c.discard(ctx, entry, "was not written with this key for this module")
	}
	return n, true, nil
}

// put keeps the code of a module. Readers see all of it or nothing.
func (c *codeCache) put(d Digest, n native) error {
	temp, err := writeNew(c.root, c.mac(d, n.name, n.code), []byte(n.name), n.code)
	if err != nil {
		return err
	}
	if err := c.root.Rename(temp, c.entry(d)); err != nil {
		c.root.Remove(temp)
		return err
	}
	return nil
}

// discard removes an entry and reports it.
func (c *codeCache) discard(ctx context.Context, entry, why string) error {
	if err := c.root.RemoveAll(entry); err != nil {
		return err
	}
	return c.tampered(ctx, entry, why)
}

// native is the code of one module as the engine writes it to a file.
type native struct {
	name string // of the file
	code []byte
}

var errNoNative = errors.New("the compiler wrote nothing")

// readNative reads the one file that the engine wrote into a directory.
func readNative(dir string) (native, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return native{}, err
	}
	if len(entries) == 0 {
		return native{}, errNoNative
	}
	if len(entries) != 1 || !isEntryName(entries[0].Name()) || !entries[0].Type().IsRegular() {
		return native{}, fmt.Errorf("the compiler wrote %d files, the first %q, want one with a digest for a name", len(entries), entries[0].Name())
	}
	name := entries[0].Name()
	info, err := entries[0].Info()
	if err != nil {
		return native{}, err
	}
	if info.Size() > maxNativeBytes {
		return native{}, fmt.Errorf("the compiler wrote %d bytes, limit %d", info.Size(), maxNativeBytes)
	}
	code, err := os.ReadFile(filepath.Join(dir, name))
	return native{name, code}, err
}
