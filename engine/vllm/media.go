package vllm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"slices"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// unseen is the refusal of a server that samples by the older way.
func unseen() error {
	return fmt.Errorf("%w: it takes them beside token ids by %s alone: start vLLM, 0.30 or newer, with --enable-scale-out", port.ErrMedia, pathGenerate)
}

// appendMedia adds the media of a prompt, whose placeholders have one id each: the server expands them, and says how. It
// takes parts of types that it does not know for nothing, so that none but images gets here.
func appendMedia(b []byte, items []media.Item) []byte {
	if len(items) == 0 {
		return b
	}
	b = append(b, `,"return_token_ids":true,"content_parts":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"type":"image_url","url":"data:`...), items[i].Type...), `;base64,`...)
		b = append(base64.StdEncoding.AppendEncode(b, items[i].Data), `"}`...)
	}
	return append(b, ']')
}

// expansion is a prompt with media in the server's words.
type expansion struct {
	Prompt       []int32                `json:"prompt_token_ids"`
	Placeholders map[string][]placement `json:"mm_placeholders"`
}

type placement struct {
	Offset int32 `json:"offset"`
	Length int32 `json:"length"`
}

// read brings the media of all modalities into the order of their places; nil where the server says no prompt.
func (x *expansion) read() *upstream.Expansion {
	if x.Prompt == nil {
		return nil
	}
	out := &upstream.Expansion{Prompt: x.Prompt}
	for modality, places := range x.Placeholders {
		for _, p := range places {
			out.Places = append(out.Places, media.Item{Modality: modality, Offset: p.Offset, Length: p.Length})
		}
	}
	slices.SortFunc(out.Places, func(a, b media.Item) int { return int(a.Offset) - int(b.Offset) })
	return out
}

// probeSide is the side of the image that a server is asked about: small, and no less than any model's patches.
const probeSide = 56

// probeImage is an image of one colour.
func probeImage() []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, probeSide, probeSide))); err != nil {
		panic("vllm: an image in memory cannot be written: " + err.Error())
	}
	return b.Bytes()
}

// See implements upstream.Viewer. The server renders a chat with an image, whose placeholder it expands. Sampled after
// those ids it takes the first of them for one to expand, and so says which id that is. With one id in the place of all
// it has to come to the same prompt.
func (d Dialect) See(ctx context.Context, s *upstream.Server, modality string, caps *upstream.Capabilities) (upstream.Sight, error) {
	switch {
	case modality != media.Image:
		return upstream.Sight{}, fmt.Errorf("%w of the modality %.20q: images are the only ones", port.ErrMedia, modality)
	case !of(caps).generate:
		return upstream.Sight{}, unseen()
	}
	item := media.Item{Modality: media.Image, Type: "image/png", Data: probeImage()}
	chat := `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64.StdEncoding.EncodeToString(item.Data) + `"}}]}]`
	whole, err := d.Render(ctx, s, []byte(chat), nil, true, caps)
	if status := upstream.StatusOf(err); status/100 == 4 && !absent(err) {
		return upstream.Sight{}, fmt.Errorf("%w: the model %s reads text alone: %w", port.ErrMedia, caps.Model, err)
	}
	if err != nil {
		return upstream.Sight{}, err
	}
	twice, err := expand(ctx, s, whole, &item, caps)
	if err != nil {
		return upstream.Sight{}, err
	}
	pad := twice.Prompt[twice.Places[0].Offset]
	places, err := media.Find([]media.Item{item}, whole, pad, 0)
	if err != nil {
		return upstream.Sight{}, fmt.Errorf("%w that consist of several ids: %w", port.ErrMedia, err)
	}
	once, err := expand(ctx, s, media.Collapse(whole, places), &item, caps)
	if err != nil {
		return upstream.Sight{}, err
	}
	if !slices.Equal(once.Prompt, whole) || once.Places[0].Offset != places[0].Offset || once.Places[0].Length != places[0].Length {
		return upstream.Sight{}, fmt.Errorf("%w whose placeholders it does not expand from one id: it renders %v and expands to %v", port.ErrMedia, whole, once.Prompt)
	}
	return upstream.Sight{Pad: pad, Processor: processor(ctx, s, caps)}, nil
}

// expand has the server read a prompt with an image, and says what it has made of it.
func expand(ctx context.Context, s *upstream.Server, tokens []int32, item *media.Item, caps *upstream.Capabilities) (*upstream.Expansion, error) {
	ids, err := json.Marshal(tokens)
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(bounded(s, map[string]any{"max_tokens": 1, "temperature": 0}, 1))
	if err != nil {
		return nil, err
	}
	body := append(append([]byte(`{"model":`), quoted(caps.Model)...), `,"token_ids":`...)
	body = appendMedia(append(body, ids...), []media.Item{*item})
	body = append(append(append(body, `,"sampling_params":`...), settings...), '}')
	var reply expansion
	err = s.Call(ctx, http.MethodPost, pathGenerate, json.RawMessage(body), &reply)
	if status := upstream.StatusOf(err); status/100 == 4 && !absent(err) {
		return nil, fmt.Errorf("%w: %w", port.ErrMedia, err)
	}
	if err != nil { // it may take some when it answers again
		return nil, err
	}
	x := reply.read()
	if x == nil || len(x.Places) != 1 || media.Check(x.Places, len(x.Prompt)) != nil {
		return nil, fmt.Errorf("%w: %s does not say what it makes of an image: want vLLM 0.30 or newer", port.ErrMedia, pathGenerate)
	}
	return x, nil
}

// forgetImages drops what old weights have made of images. Where the workers alone have dropped it, as they do when they
// read other weights, the scheduler counts on it: the server ends at the next request with an image that it has seen.
func forgetImages(ctx context.Context, s *upstream.Server) error {
	err := s.Call(ctx, http.MethodPost, "/reset_encoder_cache", nil, nil)
	if absent(err) {
		return nil // older builds, whose requests with images are refused
	}
	return err
}

func quoted(text string) []byte {
	out, _ := json.Marshal(text) // no string fails
	return out
}

// processor is what the server says of the model whose processor it uses; what it does not say is empty.
func processor(ctx context.Context, s *upstream.Server, caps *upstream.Capabilities) media.Processor {
	out := media.Processor{Name: caps.Model}
	var info struct {
		Config struct {
			Model struct {
				Model      string          `json:"model"`
				Revision   string          `json:"revision"`
				Multimodal json.RawMessage `json:"multimodal_config"`
			} `json:"model_config"`
		} `json:"vllm_config"`
	}
	if s.Call(ctx, http.MethodGet, "/server_info?config_format=json", nil, &info) != nil {
		return out
	}
	m := info.Config.Model
	var multimodal struct {
		Settings json.RawMessage `json:"mm_processor_kwargs"`
	}
	if m.Model != "" {
		out.Name = m.Model
	}
	out.Revision = m.Revision
	if json.Unmarshal(m.Multimodal, &multimodal) == nil && string(multimodal.Settings) != "null" {
		out.Settings = string(multimodal.Settings)
	}
	return out
}
