package kubernetes

import (
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// FuzzExitCode: the end of a command may be told in any words. It is an exit code or an error of a class.
func FuzzExitCode(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{},"status":"Success"}`,
		`{"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`,
		`{"status":"Failure","message":"executable file not found in $PATH","reason":"InternalError"}`,
		`{"details":null}`, `null`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		exit, err := exitCode(text)
		if exit < 0 || exit > 255 || err != nil && (exit != 0 || sandbox.ClassOf(err) == "") {
			t.Errorf("exit %d, %v", exit, err)
		}
	})
}
