package main

import "github.com/spf13/cobra"

func policyNewCommand(e *env) *cobra.Command {
	return newCommand(e, true, &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a guard that works",
		Long: "Make the folder NAME with the source of a policy, what it needs to be built, and a\ndecision table of which one row waits for a rule to be " +
			"written. A folder that is not\nempty is refused.",
		Example: "sandboxd policy new --lang go office\nsandboxd policy new --lang rego office-hours",
	})
}
