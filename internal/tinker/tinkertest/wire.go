package tinkertest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// read takes in a request.
func read(r *http.Request) (request, error) {
	body, err := io.ReadAll(r.Body)
	operation := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	if r.Method == http.MethodDelete {
		operation = "delete"
	}
	return request{r.Context(), operation, r.Header.Get("Content-Type"), r.Header.Get("Accept"), body}, err
}

// pass takes a pass over data in the service's encoding, and answers one in the other as the server does that has
// this encoding.
func (s *Service) pass(q request, fault Fault) reply {
	o := &operation{name: q.operation, forward: q.operation == "forward"}
	var id string
	binary := strings.HasPrefix(q.contentType, "application/x-protobuf")
	switch {
	case s.o.Encoding == JSON && binary:
		return reply{status: http.StatusInternalServerError, body: "Internal Server Error", contentType: "text/plain; charset=utf-8"}
	case s.o.Encoding == Protobuf && !binary:
		return refused(http.StatusUnsupportedMediaType, "Unsupported Content-Type %q; expected application/x-protobuf", q.contentType)
	case binary:
		var err error
		if id, err = o.fromProtobuf(q.body); err != nil {
			return refused(http.StatusUnprocessableEntity, "Invalid protobuf request: %v", err)
		}
	default:
		var bad *reply
		if id, bad = o.fromJSON(q); bad != nil {
			return *bad
		}
	}
	return s.take(id, o, fault)
}

// fromJSON reads a pass and the id of its model.
func (o *operation) fromJSON(q request) (id string, bad *reply) {
	type asked struct {
		Data []struct {
			Input  input `json:"model_input"`
			Inputs map[string]struct {
				Data []float64 `json:"data"`
			} `json:"loss_fn_inputs"`
		} `json:"data"`
		Loss   string             `json:"loss_fn"`
		Config map[string]float64 `json:"loss_fn_config"`
	}
	var body struct {
		Model    string `json:"model_id"`
		Seq      int    `json:"seq_id"`
		Backward *asked `json:"forward_backward_input"`
		Forward  *asked `json:"forward_input"`
	}
	if bad := q.json(&body); bad != nil {
		return "", bad
	}
	in, name := body.Backward, "forward_backward_input"
	if o.forward {
		in, name = body.Forward, "forward_input"
	}
	if body.Model == "" {
		name = "model_id"
	}
	if body.Model == "" || in == nil {
		r := missing(name)
		return "", &r
	}
	o.seq, o.loss = body.Seq, loss{in.Loss, in.Config}
	for _, d := range in.Data {
		one := datum{tokens: d.Input.tokens(), inputs: map[string][]float64{}}
		for name, values := range d.Inputs {
			if name != "target_tokens" {
				one.inputs[name] = values.Data
				continue
			}
			for _, v := range values.Data {
				one.targets = append(one.targets, int32(v))
			}
		}
		o.data = append(o.data, one)
	}
	return body.Model, nil
}

// missing is what a server that reads JSON answers to a body without the model.
func missing(field string) reply {
	return reply{status: http.StatusUnprocessableEntity, body: map[string]any{
		"detail": []any{map[string]any{"type": "missing", "loc": []string{"body", field}, "msg": "Field required"}},
	}}
}

// each calls see for the fields of a message: bytes for what has a length, bits for numbers.
func each(message []byte, see func(number protowire.Number, bytes []byte, bits uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var bytes []byte
		var bits uint64
		switch kind {
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			bits, n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			bits, n = protowire.ConsumeFixed64(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := see(number, bytes, bits); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// fromProtobuf reads a ForwardBackwardRequest and the id of its model.
func (o *operation) fromProtobuf(message []byte) (id string, err error) {
	o.loss.config = map[string]float64{}
	err = each(message, func(number protowire.Number, bytes []byte, bits uint64) error {
		switch number {
		case 1:
			id = string(bytes)
		case 2:
			o.seq = int(bits)
		case 3:
			d, err := datumFromProtobuf(bytes)
			o.data = append(o.data, d)
			return err
		case 4:
			o.loss.name = string(bytes)
		case 5:
			return each(bytes, pair(func(name string, _ []byte, bits uint64) error {
				o.loss.config[name] = math.Float64frombits(bits)
				return nil
			}))
		case 6:
			if o.forward = bits != 0; o.forward {
				o.name = "forward"
			}
		}
		return nil
	})
	return id, err
}

// pair sees the value of a map's entry, with its key.
func pair(see func(name string, bytes []byte, bits uint64) error) func(protowire.Number, []byte, uint64) error {
	var name string
	return func(number protowire.Number, bytes []byte, bits uint64) error {
		if number == 1 {
			name = string(bytes)
			return nil
		}
		return see(name, bytes, bits)
	}
}

func datumFromProtobuf(message []byte) (datum, error) {
	d := datum{inputs: map[string][]float64{}}
	err := each(message, func(number protowire.Number, chunk []byte, _ uint64) error {
		if number == 2 {
			return each(chunk, pair(d.tensor))
		}
		return each(chunk, func(number protowire.Number, text []byte, _ uint64) error {
			if number != 1 {
				return fmt.Errorf("a chunk that is no text")
			}
			return each(text, func(_ protowire.Number, tokens []byte, _ uint64) error {
				for ; len(tokens) >= 4; tokens = tokens[4:] {
					d.tokens = append(d.tokens, int32(binary.LittleEndian.Uint32(tokens)))
				}
				return nil
			})
		})
	})
	return d, err
}

// tensor reads one of a datum's inputs.
func (d *datum) tensor(name string, message []byte, _ uint64) error {
	var dense []byte
	var kind uint64
	if err := each(message, func(number protowire.Number, bytes []byte, bits uint64) error {
		switch number {
		case 1:
			dense = bytes
		case 3:
			kind = bits
		}
		return nil
	}); err != nil {
		return err
	}
	switch {
	case name == "target_tokens" && kind == 2:
		for ; len(dense) >= 8; dense = dense[8:] {
			d.targets = append(d.targets, int32(binary.LittleEndian.Uint64(dense)))
		}
	case name != "target_tokens" && kind == 1:
		d.inputs[name] = []float64{}
		for ; len(dense) >= 4; dense = dense[4:] {
			d.inputs[name] = append(d.inputs[name], float64(math.Float32frombits(binary.LittleEndian.Uint32(dense))))
		}
	default:
		return fmt.Errorf("%s has type %d", name, kind)
	}
	return nil
}

func appendField(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func appendNumber(b []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), value)
}

// passToProtobuf writes a ForwardBackwardOutput with one record.
func passToProtobuf(logprobs [][]float32, metrics map[string]float64) []byte {
	var data []byte
	offsets := make([]byte, 8)
	for _, of := range logprobs {
		data = appendFloats(data, of)
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
	}
	tensor := appendNumber(appendField(appendField(nil, 1, data), 2, offsets), 3, 1)
	record := appendField(nil, 2, appendField(appendField(nil, 1, []byte("logprobs")), 2, tensor))
	b := appendField(appendField(nil, 1, []byte("ArrayRecord")), 2, appendNumber(record, 3, uint64(len(logprobs))))
	for name, v := range metrics {
		entry := protowire.AppendTag(appendField(nil, 1, []byte(name)), 2, protowire.Fixed64Type)
		b = appendField(b, 3, protowire.AppendFixed64(entry, math.Float64bits(v)))
	}
	return b
}

func appendFloats(b []byte, values []float32) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// sampleToProtobuf writes a SampleResponse with one sequence.
func sampleToProtobuf(tokens []int32, logprobs []float32, stopped bool) []byte {
	var sequence, ids []byte
	if !stopped {
		sequence = appendNumber(nil, 1, 1)
	}
	for _, t := range tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(t))
	}
	sequence = appendField(appendField(sequence, 2, ids), 3, appendFloats(nil, logprobs))
	return appendField(nil, 1, sequence)
}
