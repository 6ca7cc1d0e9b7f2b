package tinker

import (
	"encoding/json"
	"fmt"
	"strings"
)

// textChunk and input are how a sequence of tokens is written in JSON.
type textChunk struct {
	Type   string  `json:"type"`
	Tokens []int32 `json:"tokens"`
}

type input struct {
	Chunks []textChunk `json:"chunks"`
}

func inputOf(tokens []int32) input { return input{[]textChunk{{"encoded_text", tokens}}} }

// tensor is a one-dimensional one in JSON.
type tensor struct {
	Data  any    `json:"data"`
	Type  string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// json is the request in JSON with the path that it goes to: servers that read JSON have a path of its own for a
// pass that adds no gradient, and would not see a mark in the body of the other.
func (p pass) json() (path string, body []byte, err error) {
	data := make([]map[string]any, len(p.data))
	for i, d := range p.data {
		inputs := map[string]tensor{nameTargets: {d.Targets, "int64", []int{len(d.Targets)}}}
		for name, values := range map[string][]float32{nameWeights: d.Weights, nameLogprobs: d.Logprobs, nameAdvantages: d.Advantages} {
			if values != nil {
				inputs[name] = tensor{values, "float32", []int{len(values)}}
			}
		}
		data[i] = map[string]any{"model_input": inputOf(d.Tokens), "loss_fn_inputs": inputs}
	}
	asked := map[string]any{"data": data, "loss_fn": p.loss.Name}
	if len(p.loss.Config) > 0 {
		asked["loss_fn_config"] = p.loss.Config
	}
	path = "forward_backward"
	if p.forwardOnly {
		path = "forward"
	}
	body, err = json.Marshal(map[string]any{"model_id": p.model, "seq_id": p.seq, "type": path, path + "_input": asked})
	return path, body, err
}

// floats are numbers of which none is missing: a null that read as 0 would be a certainty.
type floats []float32

// UnmarshalJSON refuses null among the numbers.
func (f *floats) UnmarshalJSON(b []byte) error {
	var read []*float32
	if err := json.Unmarshal(b, &read); err != nil || read == nil {
		return err
	}
	*f = make(floats, len(read))
	for i, v := range read {
		if v == nil {
			return fmt.Errorf("number %d is null", i)
		}
		(*f)[i] = *v
	}
	return nil
}

// outputFrom reads the result of a pass in the encoding that it has come in.
func outputFrom(a answer) (Output, error) {
	if strings.Contains(a.contentType, protobufType) {
		return outputFromProtobuf(a.body)
	}
	var said struct {
		Outputs []struct {
			Logprobs *struct {
				Data floats `json:"data"`
			} `json:"logprobs"`
		} `json:"loss_fn_outputs"`
		Metrics map[string]float64 `json:"metrics"`
	}
	if err := json.Unmarshal(a.body, &said); err != nil {
		return Output{}, err
	}
	o := Output{Metrics: said.Metrics}
	for i, one := range said.Outputs {
		if one.Logprobs == nil {
			return Output{}, fmt.Errorf("no log-probs of datum %d", i)
		}
		o.Logprobs = append(o.Logprobs, one.Logprobs.Data)
	}
	return o, nil
}

// sequencesFrom reads the result of a sample in the encoding that it has come in.
func sequencesFrom(a answer) ([]Sequence, error) {
	if strings.Contains(a.contentType, protobufType) {
		return sequencesFromProtobuf(a.body)
	}
	var said struct {
		Sequences []struct {
			Tokens   []int32 `json:"tokens"`
			Logprobs floats  `json:"logprobs"`
			Reason   string  `json:"stop_reason"`
		} `json:"sequences"`
	}
	if err := json.Unmarshal(a.body, &said); err != nil {
		return nil, err
	}
	var sequences []Sequence
	for _, one := range said.Sequences {
		if one.Reason != "stop" && one.Reason != "length" {
			return nil, fmt.Errorf("reason %q to stop: want stop or length", one.Reason)
		}
		sequences = append(sequences, Sequence{one.Tokens, one.Logprobs, one.Reason == "stop"})
	}
	return sequences, nil
}
