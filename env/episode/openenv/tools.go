package openenv

import (
	"context"
	"encoding/json"

	"github.com/headway-rl/headway/env/sandbox"
)

// list asks the environment for its tools, in OpenAI's shape.
func (w *World) list(ctx context.Context) (json.RawMessage, error) {
	observed, mistake, err := w.step(ctx, json.RawMessage(`{"type":"list_tools"}`))
	if err != nil {
		return nil, err
	}
	if mistake != "" {
		return nil, sandbox.Fail(sandbox.Refused, "reset", "", "the environment lists no tools: choose another mode than tools: %s", mistake)
	}
	var listed []struct {
		Name, Description string
		Schema            json.RawMessage `json:"input_schema"`
	}
	if err := json.Unmarshal(observed.Observation["tools"], &listed); err != nil || len(listed) == 0 {
		return nil, sandbox.Fail(sandbox.Protocol, "reset", "", "%.200q is no list of tools: %v", observed.Observation["tools"], err)
	}
	var tools []any
	for _, t := range listed {
		tools = append(tools, function(t.Name, t.Description, t.Schema))
	}
	return mustMarshal(tools), nil
}

// showResult is what the policy sees of a tool's result: its text where it is or has one, and JSON otherwise.
func (s *Server) showResult(o observation) string {
	if message := toolError(o.Observation["error"]); message != "" {
		return cut("Error: "+message, s.o.Shown)
	}
	result := o.Observation["result"]
	if result == nil {
		return cut(string(mustMarshal(o.Observation)), s.o.Shown)
	}
	var of struct {
		Data json.RawMessage
	}
	if json.Unmarshal(result, &of) == nil && of.Data != nil {
		result = of.Data
	}
	var text string
	if json.Unmarshal(result, &text) != nil {
		text = string(result)
	}
	return cut(text, s.o.Shown)
}

func toolError(raw json.RawMessage) string {
	var e struct{ Message string }
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	return e.Message
}
