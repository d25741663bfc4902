// Package app turns a directory with an agent.yaml into a runtime: plugins and
// guards loaded, grants computed, tools and hooks wired, a runner ready. Whatever
// is wrong is found here, before a call can wait for it, and is an [Error] that
// names the file, the line and what to do.
package app
