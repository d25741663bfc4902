package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A versionInfo is what this binary was made of.
type versionInfo struct {
	Format   int    `json:"format"`
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the commit is not all there is
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Engine   string `json:"engine"` // wazero
	ABI      int    `json:"abi"`
}

func versionCommand(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Say what this binary was made of",
		Example: "sandboxd version\nsandboxd version --json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(v)
			}
			commit := v.Commit
			if v.Modified {
				commit += " and changes"
			}
			for _, line := range [][2]string{{"sandboxd", v.Version}, {"commit", commit}, {"go", v.Go},
				{"platform", v.Platform}, {"engine", "wazero " + v.Engine}, {"abi", fmt.Sprint(v.ABI)}} {
				if line[1] != "" {
					fmt.Fprintf(e.stdout, "%-9s %s\n", line[0], line[1])
				}
			}
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func readVersion() versionInfo {
	v := versionInfo{Format: 1, Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Engine: "(unknown)", ABI: abi.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/tetratelabs/wazero" {
			v.Engine = m.Version
		}
	}
	return v
}
