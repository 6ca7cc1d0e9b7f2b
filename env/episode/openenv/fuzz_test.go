package openenv

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
)

// FuzzAnswers: a server may say anything. It is an observation with a reward that counts, a mistake that the
// policy is told, or an error of a class.
func FuzzAnswers(f *testing.F) {
	for _, text := range []string{
		observed, `{"type":"observation","data":{"observation":{"result":{"data":"x"},"error":{"message":"m"}},"reward":1.5,"done":true}}`,
		`{"type":"error","data":{"message":"m","code":"VALIDATION_ERROR","errors":[{"loc":["a",1],"msg":"n"}]}}`,
		`{"type":"error","data":{"message":"m","code":"CAPACITY_REACHED"}}`, `{"type":"observation","data":{"observation":{"tools":[{"name":"t","input_schema":{}}]},"reward":true}}`,
	} {
		f.Add([]byte(text), "text")
	}
	f.Fuzz(func(t *testing.T, text []byte, shown string) {
		var w wire
		a, err := w.understand(text, true)
		if err != nil {
			if lost(err) != sandbox.Protocol {
				t.Errorf("%v is not a fault of the protocol", err)
			}
			return
		}
		o, mistake, err := (&World{}).observe("step", a)
		if err != nil && sandbox.ClassOf(err) == "" {
			t.Errorf("an error without a class: %v", err)
		}
		if err != nil || mistake != "" {
			return
		}
		reward, rewarded, err := o.reward()
		if err == nil && (math.IsNaN(reward) || math.IsInf(reward, 0) || !rewarded && reward != 0) {
			t.Errorf("reward %g, %v", reward, rewarded)
		}
		for _, show := range []string{"", shown} {
			s := &Server{o: Options{Show: show, Shown: 100}}
			for _, seen := range []string{s.showResult(o), first(s.show(o))} {
				if len(seen) > 150 {
					t.Errorf("%d bytes are shown", len(seen))
				}
			}
		}
	})
}

func first(text string, _ error) string { return text }

// FuzzActions: a schema from a server and a message of a policy may be anything. What is sent to the server is JSON.
func FuzzActions(f *testing.F) {
	f.Add([]byte(`{"properties":{"message":{"type":"string"},"metadata":{}},"required":["message"]}`), "hi ```json\n{\"a\":1}\n```", "act", `{"message":"m"}`)
	f.Add([]byte(`{"properties":{"tool_name":{},"arguments":{}}}`), "", "t", ` {"a":[]} `)
	f.Add([]byte(`{"properties":null}`), "", "", "")
	f.Fuzz(func(t *testing.T, text []byte, said, name, arguments string) {
		for _, mode := range []Mode{Auto, Text, JSON, Act, Tools} {
			s, err := readSchema(text, mode, "")
			if err != nil {
				continue
			}
			if s.tools != nil && !json.Valid(s.tools) {
				t.Errorf("the tools are %q", s.tools)
			}
			message := episode.Message{Text: said, Calls: []episode.Call{{ID: "c", Name: name, Arguments: arguments}}}
			for _, a := range s.actions(message) {
				if (a.mistake == "") == (a.data == nil) || a.data != nil && !json.Valid(a.data) {
					t.Errorf("%s: the action is %q, the mistake %q", mode, a.data, a.mistake)
				}
			}
		}
	})
}
