package main

import (
	"os"

	"github.com/sandboxd/sandboxd/host"
)

func main() {
	host.Main()
	os.Exit(run(untilInterrupted(), processEnv()))
}
