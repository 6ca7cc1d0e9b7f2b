package swerex

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// FuzzAnswers: a server may answer anything, since the policy's code runs beside it. The second text is
// what supervise.py is said to have printed.
func FuzzAnswers(f *testing.F) {
	f.Add(0, "", `{"exit":3,"signal":"SIGKILL","limit":"timeout","wall":1.5,"stdout":"YQ==","boxes":["a-1"]}`)
	f.Add(0, "", `{"limit":"none that there is"}`)
	f.Add(0, "", `{"wall":1e300,"cpu":-1}`)
	f.Add(0, "", `{"stdout":"YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo=","stderr":"YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo="}`)
	f.Add(0, "", `{"error":"full","message":"m"}`)
	f.Add(0, "", `{"running":"/tmp/file"}`)
	f.Add(1, `{"swerexception":{"message":"m","class_path":"builtins.MemoryError"}}`, "")
	for _, name := range []string{"missing_program", "no_session", "timeout"} {
		f.Add(1, recorded(f, name), "")
	}
	f.Add(0, `{"is_alive":true,"paths":{"/execute":{},"/upload":{},"/read_file":{}},"content":"{\"exit\":1}"}`, "")
	var status int
	var answer string
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	f.Cleanup(front.Close)
	d := mustDriver(f, Options{URLs: []string{front.URL}})
	const output = 16
	limit := func(c sandbox.Class) bool {
		return slices.Contains([]sandbox.Class{"", sandbox.OutOfMemory, sandbox.Timeout, sandbox.Processes, sandbox.Disk, sandbox.Output}, c)
	}
	statuses := []int{200, 511, 401, 404, 429, 500} // others are asked again after a pause
	f.Fuzz(func(t *testing.T, which int, whole, printed string) {
		status, answer = statuses[int(uint(which)%uint(len(statuses)))], whole
		if whole == "" {
			text, err := json.Marshal(map[string]any{"stdout": printed, "exit_code": 0})
			if err != nil {
				t.Fatal(err)
			}
			answer = string(text)
		}
		_, _ = d.Check(t.Context())
		ids, _ := d.List(t.Context(), "a")
		for _, id := range ids {
			if !id.OwnedBy("a") {
				t.Errorf("a box %q of another", id)
			}
		}
		b := newBox(d.servers[0], "a-1", sandbox.Spec{Limits: sandbox.Limits{Output: output}}, "")
		if result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"true"}}); err == nil {
			if !limit(result.Limit) || result.Wall < 0 || result.CPU < 0 || len(result.Stdout)+len(result.Stderr) > 2*output {
				t.Errorf("%+v", result)
			}
		}
		_, _ = b.Read(t.Context(), "/a", 1)
	})
}
