package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A role is what a module can be used as.
type role string

const (
	asPlugin role = "plugin"
	asGuard  role = "guard"
)

// A verdict says whether a module is accepted in a role.
type verdict struct {
	As       role          `json:"as"`
	Accepted bool          `json:"accepted"`
	Reasons  []host.Reason `json:"reasons,omitempty"` // every one found
	Note     string        `json:"note,omitempty"`    // what is accepted only with settings
}

// declared returns the roles in which a manifest offers something. A module
// without a manifest is taken for a plugin.
func declared(m *abi.Manifest) []role {
	var roles []role
	if m == nil || len(m.Tools)+len(m.Hooks) > 0 {
		roles = append(roles, asPlugin)
	}
	if m != nil && len(m.Guards) > 0 {
		roles = append(roles, asGuard)
	}
	return roles
}

// judge says whether a loaded module is accepted in a role, by making of it what
// an app makes of it. A guard is asked built-in questions for that.
func judge(ctx context.Context, module *host.Module, as role) verdict {
	v := verdict{As: as}
	m := module.Manifest()
	refuse := func(code abi.Code, format string, args ...any) {
		v.Reasons = append(v.Reasons, host.Reason{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	requests, err := capability.ParseSet(m.Requests)
	if err != nil {
		refuse(abi.CapabilityInvalid, "manifest: %v", err)
	}
	switch as {
	case asPlugin:
		if len(m.Tools)+len(m.Hooks) == 0 {
			refuse(abi.ModuleABI, "offers no tool and no hook")
		}
		if _, err := plugins.New(module, plugins.Config{}); err != nil && len(v.Reasons) == 0 {
			refuse(abi.ModuleABI, "%v", err)
		}
	case asGuard:
		if len(m.Guards) == 0 {
			refuse(abi.ModuleABI, "offers no guard")
		}
		for _, line := range requests.Lines() {
			if !host.GuardMay(line) {
				refuse(abi.CapabilityDenied, "asks %s, which a guard may not have", line)
			}
		}
		for _, g := range m.Guards {
			if len(v.Reasons) > 0 {
				break // it is refused, so it is not run
			}
			_, err := policies.New(ctx, module, policies.Config{Guard: g.Name, Limits: host.Limits{Wall: time.Second}})
			if needs, ok := errors.AsType[*policies.SettingsError](err); ok {
				v.Note = fmt.Sprintf("guard %s needs settings: %v", g.Name, needs.Err)
			} else if err != nil {
				refuse(abi.PolicyUnavailable, "%v", err)
			}
		}
	}
	v.Accepted = len(v.Reasons) == 0
	return v
}

// refusal is the error for a module that is not what it declares to be.
func refusal(name string, v verdict) *commandError {
	return &commandError{What: fmt.Sprintf("%s: refused as a %s: %s", name, v.As, rejectText(v.Reasons)),
		Code: v.Reasons[0].Code, Hint: rejectHint(name, v.Reasons), Exit: exitNotDone}
}
