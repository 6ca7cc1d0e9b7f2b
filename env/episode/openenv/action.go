package openenv

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/env/episode"
)

// actTool is the name of the one tool under Act.
const actTool = "act"

// schema is how actions are made for a server.
type schema struct {
	mode  Mode
	field string // under Text
	// tools are what the policy is offered under Act.
	tools json.RawMessage
}

// readSchema reads the server's schema of actions, in JSON Schema as /schema has it.
func readSchema(action json.RawMessage, mode Mode, field string) (*schema, error) {
	var s struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal(action, &s); err != nil {
		return nil, fmt.Errorf("the action's schema is no JSON Schema of an object: %w", err)
	}
	delete(s.Properties, "metadata") // every action has it, and none needs it
	if field != "" {
		if _, known := s.Properties[field]; !known && len(s.Properties) > 0 {
			return nil, fmt.Errorf("the action has no field %q; it has %s", field, fields(s.Properties))
		}
		return &schema{mode: Text, field: field}, nil
	}
	texts := textFields(s.Properties, s.Required)
	switch {
	case mode == Auto && callsTools(s.Properties):
		mode = Tools
	case mode == Auto && len(texts) == 1 && len(s.Required) <= 1:
		mode = Text
	case mode == Auto:
		mode = Act
	case mode == Text && len(texts) != 1:
		return nil, fmt.Errorf("%d fields of the action could take the text, so that one has to be named; it has %s", len(texts), fields(s.Properties))
	}
	made := &schema{mode: mode}
	if mode == Text {
		made.field = texts[0]
	}
	if mode == Act {
		made.tools = tool(actTool, "Act in the environment.", withoutMetadata(action))
	}
	return made, nil
}

// callsTools reports whether actions are those of MCP: any of them by a generic schema, or the call itself.
func callsTools(properties map[string]json.RawMessage) bool {
	_, name := properties["tool_name"]
	_, arguments := properties["arguments"]
	return len(properties) == 0 || name && arguments
}

// textFields are those that must be given and take text; where none must be, those that take it.
func textFields(properties map[string]json.RawMessage, required []string) (names []string) {
	for name, raw := range properties {
		var p struct{ Type string }
		if json.Unmarshal(raw, &p) == nil && p.Type == "string" && (len(required) == 0 || slices.Contains(required, name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func fields(properties map[string]json.RawMessage) string {
	return strings.Join(slices.Sorted(maps.Keys(properties)), ", ")
}

// withoutMetadata is a schema of an action without the field that policies have no use for.
func withoutMetadata(action json.RawMessage) json.RawMessage {
	var whole, properties map[string]json.RawMessage
	if json.Unmarshal(action, &whole) != nil || json.Unmarshal(whole["properties"], &properties) != nil {
		return action
	}
	delete(properties, "metadata")
	whole["properties"] = mustMarshal(properties)
	return mustMarshal(whole)
}

// tool is a tool in OpenAI's shape, in a list of its own.
func tool(name, description string, parameters json.RawMessage) json.RawMessage {
	return mustMarshal([]any{function(name, description, parameters)})
}

func function(name, description string, parameters json.RawMessage) any {
	return map[string]any{"type": "function", "function": map[string]any{
		"name": name, "description": description, "parameters": parameters,
	}}
}

// mustMarshal is for what was read from JSON or is made of plain values.
func mustMarshal(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// action is one that the policy asked for; call is the tool call that did, nil for its text.
type action struct {
	data json.RawMessage
	call *episode.Call
	// mistake is why there is none, for the policy to read.
	mistake string
}

// actions are what a message asks for, in its order; at least one.
func (s *schema) actions(said episode.Message) []action {
	switch s.mode {
	case Text:
		return []action{{data: mustMarshal(map[string]string{s.field: said.Text})}}
	case JSON:
		data, err := objectIn(said.Text)
		if err != nil {
			return []action{{mistake: "No action was taken: " + err.Error()}}
		}
		return []action{{data: data}}
	}
	if len(said.Calls) == 0 {
		return []action{{mistake: "No action was taken: the message calls no tool. Act by calling one."}}
	}
	made := make([]action, len(said.Calls))
	for i := range said.Calls {
		made[i] = s.called(&said.Calls[i])
	}
	return made
}

func (s *schema) called(call *episode.Call) action {
	if s.mode == Act && call.Name != actTool {
		return action{call: call, mistake: fmt.Sprintf("There is no tool %q; there is %s.", call.Name, actTool)}
	}
	arguments := cmp.Or(strings.TrimSpace(call.Arguments), "{}")
	if !isObject([]byte(arguments)) {
		return action{call: call, mistake: "The arguments are not a JSON object."}
	}
	data := json.RawMessage(arguments)
	if s.mode == Tools {
		data = mustMarshal(map[string]any{"type": "call_tool", "tool_name": call.Name, "arguments": data})
	}
	return action{call: call, data: data}
}

func isObject(text []byte) bool {
	return bytes.HasPrefix(text, []byte("{")) && json.Valid(text)
}

// objectIn is the JSON object that a text is, or that its last fenced block is.
func objectIn(text string) (json.RawMessage, error) {
	whole := []byte(strings.TrimSpace(text))
	if isObject(whole) {
		return whole, nil
	}
	blocks := strings.Split(text, "```")
	for i := len(blocks) - 1; i > 0; i-- {
		if i%2 == 0 {
			continue // between blocks
		}
		block := []byte(strings.TrimSpace(strings.TrimPrefix(blocks[i], "json")))
		if isObject(block) {
			return block, nil
		}
	}
	return nil, errors.New("the message is no JSON object, and no fenced block in it is one")
}
