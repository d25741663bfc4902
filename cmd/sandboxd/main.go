package main

import "os"

func main() { os.Exit(run(untilInterrupted(), processEnv())) }
