package app

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// secrets reads the values of the app's secrets.
func (f *File) secrets(getenv func(string) string) (*host.Secrets, error) {
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f.Secrets)) {
		s := f.Secrets[name]
		if s.File != "" {
			data, err := os.ReadFile(f.path(s.File))
			if err != nil {
				return nil, bad(abi.ConfigInvalid, "", "secret %s: %v", name, err)
			}
			values[name] = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
			continue
		}
		if getenv != nil {
			values[name] = getenv(s.Env)
		}
		if values[name] == "" {
			return nil, bad(abi.ConfigInvalid, fmt.Sprintf("export %s=…, or secrets: {%s: {file: …}}", s.Env, name), "secret %s: variable not set", name)
		}
	}
	made, err := host.NewSecrets(values)
	if err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at("secrets"), err)
	}
	return made, nil
}

// grantedSecrets reports a grant of a secret that the app does not have.
func (f *File) grantedSecrets(path string, lines []string) error {
	for i, line := range lines {
		c, err := capability.Parse(line)
		if err != nil || c.Kind() != "secret" {
			continue
		}
		name := strings.Fields(c.String())[2] // secret use NAME at HOST
		if _, known := f.Secrets[name]; !known && !strings.Contains(name, "*") {
			return bad(abi.ConfigInvalid, fmt.Sprintf("add secrets: {%s: {env: %s}}", name, name), "%s: the app has no secret %s",
				f.at(fmt.Sprintf("%s[%d]", path, i)), name)
		}
	}
	return nil
}
