package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
)

// imageWord stands for an image in what the reference renders: one id an embedding.
const imageWord = "\x01\x01\x01\x01"

// seer renders images as the reference renders texts.
type seer struct {
	*reference
	blind error
	// drops leaves images out.
	drops bool
}

func (s seer) See(context.Context, string) (int32, media.Processor, error) {
	return encode(imageWord)[0], media.Processor{Name: "tiny"}, s.blind
}

func (s seer) Render(ctx context.Context, messages, tools []byte, generation bool) ([]int32, error) {
	var chat []map[string]any
	if err := json.Unmarshal(messages, &chat); err != nil {
		return nil, err
	}
	for _, m := range chat {
		parts, _ := m["content"].([]any)
		for i, p := range parts {
			part := p.(map[string]any)
			if part["type"] != "image_url" {
				continue
			}
			if url := part["image_url"].(object)["url"].(string); !strings.HasPrefix(url, "data:image/") {
				return nil, protocol.Refuse(protocol.CodeInvalid, "no image: %s", url)
			}
			if parts[i] = (object{"type": "text", "text": imageWord}); s.drops {
				parts[i] = object{"type": "text", "text": ""}
			}
		}
	}
	text, err := json.Marshal(chat)
	if err != nil {
		return nil, err
	}
	return s.reference.Render(ctx, text, tools, generation)
}

// pngOf is a PNG of one colour.
func pngOf(t testing.TB, shade uint8) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, 8, 8))
	m.SetGray(1, 1, color.Gray{Y: shade})
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func dataURL(data []byte) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)
}

func imagePart(data []byte) object {
	return object{"type": "image_url", "image_url": object{"url": dataURL(data)}}
}

func textPart(text string) object { return object{"type": "text", "text": text} }

func userSays(parts ...object) object { return object{"role": "user", "content": parts} }

func seeingHouse(t *testing.T, change ...func(*Options)) *house {
	return newHouse(t, func(int, protocol.TurnRequest) response { return says("yes") },
		append([]func(*Options){func(o *Options) { o.Templates = seer{reference: o.Templates.(*reference)} }}, change...)...)
}

// placed are the media of a turn, as text.
func checkPlaced(t *testing.T, r record, images ...[]byte) {
	t.Helper()
	if len(r.req.Media) != len(images) {
		t.Fatalf("%d media go along, want %d", len(r.req.Media), len(images))
	}
	if err := media.Check(r.req.Media, len(r.prompt)); err != nil {
		t.Fatal(err)
	}
	for i, m := range r.req.Media {
		if !bytes.Equal(m.Data, images[i]) || m.Size != int64(len(images[i])) || m.Type != "image/png" || m.Processor.Name != "tiny" {
			t.Errorf("image %d is %v of %d bytes, made by %+v", i, m.Type, len(m.Data), m.Processor)
		}
		if got := decodeIDs(r.prompt[m.Offset:m.End()]); got != imageWord {
			t.Errorf("image %d stands at %q", i, got)
		}
	}
}

// Turns later in the conversation keep expansions: what was placed once stays where it is, and the sampled tokens between
// are those that were sampled.
func TestImagesOverTurns(t *testing.T) {
	h := seeingHouse(t)
	a, b := pngOf(t, 1), pngOf(t, 2)
	chat := []any{userSays(textPart("what is "), imagePart(a), textPart("?"))}
	first := h.ask(object{"messages": chat})
	chat = append(chat, first.answer(t, 0), userSays(imagePart(b), textPart(" and "), imagePart(a)))
	second := h.ask(object{"messages": chat})
	chat = append(chat, second.answer(t, 0), object{"role": "user", "content": "no image now"})
	h.ask(object{"messages": chat})
	seen := h.port.seen()
	checkPlaced(t, seen[0], a)
	checkPlaced(t, seen[1], a, b, a)
	checkPlaced(t, seen[2], a, b, a)
	if seen[2].branch != 0 || len(h.port.branches) != 1 {
		t.Errorf("%d branches, want one", len(h.port.branches))
	}
	for i := range seen[1].req.Media {
		if m, n := &seen[1].req.Media[i], &seen[2].req.Media[i]; !m.Same(n) || &m.Data[0] != &n.Data[0] {
			t.Errorf("image %d has moved, or is kept twice", i)
		}
	}
}

// The same image is kept once for all conversations, and no longer than these.
func TestImagesAreKeptOnce(t *testing.T) {
	a := pngOf(t, 1)
	h := seeingHouse(t, func(o *Options) { o.MediaBytesMax = int64(len(a)) + 8 })
	for range 3 {
		h.ask(object{"messages": []any{userSays(imagePart(a), textPart(" "), imagePart(a))}})
	}
	p := h.gateway.pictures
	if len(p.kept) != 1 || p.bytes != int64(len(a)) {
		t.Errorf("%d images of %d bytes are kept", len(p.kept), p.bytes)
	}
	full, _ := json.Marshal(object{"messages": []any{userSays(imagePart(pngOf(t, 9)))}})
	if w := h.post("/v1/chat/completions", string(full)); w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "images of this rollout") {
		t.Errorf("beyond the bound: %d %s", w.Code, w.Body)
	}
	close(h.port.ended)
	h.gateway.watching.Wait()
	if len(p.kept) != 0 || p.bytes != 0 {
		t.Errorf("%d images of %d bytes are kept after the rollout's end", len(p.kept), p.bytes)
	}
}

// Where the images of all conversations have too many bytes, the one that has held some for longest goes on, and then the next.
func TestTheEldestConversationGoesOnBeyondTheBound(t *testing.T) {
	p := &pictures{most: 100, kept: make(map[media.Hash]*picture), holders: make(map[*conversation]int64)}
	n := byte(0)
	asks := func(c *conversation, size int64) protocol.Code {
		n++
		err := p.take(c, &media.Item{Hash: media.Hash{n}, Size: size})
		if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
			return refusal.Code
		}
		return ""
	}
	first, second, third := newConversation(nil, 1, 1), newConversation(nil, 1, 1), newConversation(nil, 1, 1)
	for i, step := range []struct {
		by   *conversation
		size int64
		want protocol.Code
	}{
		{first, 40, ""}, {second, 50, ""}, {second, 20, protocol.CodeBusy}, {third, 20, protocol.CodeBusy}, {first, 20, ""}, {first, 50, protocol.CodeTooLarge}, {first, 40, ""},
	} {
		if code := asks(step.by, step.size); code != step.want {
			t.Errorf("step %d: %q, want %q", i, code, step.want)
		}
	}
	p.release(first)
	if code := asks(second, 50); code != "" || p.bytes != 100 {
		t.Errorf("behind the eldest: %q, with %d bytes", code, p.bytes)
	}
	p.release(second)
	if code := asks(third, 100); code != "" || len(p.kept) != 1 || len(p.holders) != 1 {
		t.Errorf("behind both: %q, %d kept, %d holders", code, len(p.kept), len(p.holders))
	}
}

// An image nobody can read, at a place that cannot be, or that would be dropped: each is refused by name, and nothing is
// sampled.
func TestImagesThatAreRefused(t *testing.T) {
	good := pngOf(t, 1)
	broken := append([]byte{}, good...)
	broken[18] ^= 0xff // the width, whose checksum is wrong then
	for _, c := range []struct {
		name string
		part object
		want string
	}{
		{"nobody can read it", imagePart([]byte("hello")), "content[1] is an image that cannot be read"},
		{"its header is broken", imagePart(broken), "cannot be read"},
		{"empty", imagePart(nil), "cannot be read"},
		{"no base64", object{"type": "image_url", "image_url": object{"url": "data:image/png;base64,*"}}, "is no base64"},
		{"no base64 is said", object{"type": "image_url", "image_url": object{"url": "data:image/png,abc"}}, "no data: URL of base64"},
		{"elsewhere", object{"type": "image_url", "image_url": object{"url": "https://example.com/a.png"}}, "nothing is fetched"},
		{"a file", object{"type": "image_url", "image_url": object{"url": "file:///etc/passwd"}}, "nothing is fetched"},
		{"no image", object{"type": "image_url"}, "names no image"},
		{"a word of another's", object{"type": "image_url", "image_url": object{"url": dataURL(good), "format": "x"}}, "names no image"},
		{"sizes of its own", object{"type": "image_url", "image_url": object{"url": dataURL(good)}, "max_pixels": 5}, "max_pixels"},
		{"a video", object{"type": "video_url", "video_url": object{"url": "data:video/mp4;base64,AAAA"}}, "video_url"},
		{"a sound", object{"type": "input_audio", "input_audio": object{"data": "AAAA", "format": "wav"}}, "input_audio"},
		{"the word of a placeholder in a text", textPart(imageWord), "cannot be placed"},
	} {
		h := seeingHouse(t)
		body, err := json.Marshal(object{"messages": []any{userSays(textPart("what?"), c.part, textPart("."), imagePart(good))}})
		if err != nil {
			t.Fatal(err)
		}
		w := h.post("/v1/chat/completions", string(body))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		if len(h.port.seen()) != 0 || strings.Contains(w.Body.String(), h.gateway.pictures.mark) {
			t.Errorf("%s: %d turns were sampled", c.name, len(h.port.seen()))
		}
	}
}

// An image at a text model, or one that a template drops in silence: refused.
func TestImagesThatNobodySees(t *testing.T) {
	chat, err := json.Marshal(object{"messages": []any{userSays(imagePart(pngOf(t, 1)))}})
	if err != nil {
		t.Fatal(err)
	}
	for name, templates := range map[string]Templates{
		"no engine of this run takes any":      &reference{},
		"the model reads text alone":           seer{reference: &reference{}, blind: protocol.Refuse(protocol.CodeInvalid, "the model reads text alone")},
		"the chat template leaves some out":    seer{reference: &reference{}, drops: true},
		"nothing here renders chats or reads ": nil,
	} {
		h := newHouse(t, func(int, protocol.TurnRequest) response { return says("yes") }, func(o *Options) { o.Templates = templates })
		if w := h.post("/v1/chat/completions", string(chat)); w.Code/100 == 2 || !strings.Contains(w.Body.String(), name) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if len(h.port.seen()) != 0 {
			t.Errorf("%s: a turn was sampled", name)
		}
	}
}

// Spellings of OpenAI's other API and of templates mean the same image; what changes nothing is named.
func TestImageSpellings(t *testing.T) {
	a := pngOf(t, 1)
	for _, part := range []object{
		{"type": "input_image", "image_url": dataURL(a)},
		{"type": "image", "image": dataURL(a)},
		{"type": "image_url", "image_url": dataURL(a), "detail": "auto"},
	} {
		h := seeingHouse(t)
		h.ask(object{"messages": []any{userSays(part)}})
		checkPlaced(t, h.port.seen()[0], a)
	}
	h := seeingHouse(t)
	reply := h.ask(object{"messages": []any{userSays(object{"type": "image_url", "image_url": object{"url": dataURL(a), "detail": "low"}})}})
	if got := reply.Choices[0].Headway.Overridden; len(got) != 1 || got[0] != "image_url.detail" {
		t.Errorf("overridden %v, want image_url.detail", got)
	}
}

// Images do not count among the bytes that a context can have.
func TestImagesInALongBody(t *testing.T) {
	noise := make([]byte, 2<<20)
	for i := range noise {
		noise[i] = byte(i*i + i>>8)
	}
	a := append(pngOf(t, 1), noise...) // readers stop at the end of the image
	h := seeingHouse(t, func(o *Options) { o.Context = 64 })
	h.ask(object{"messages": []any{userSays(imagePart(a))}})
	checkPlaced(t, h.port.seen()[0], a)
}

func TestImageTypes(t *testing.T) {
	m := image.NewPaletted(image.Rect(0, 0, 3, 2), color.Palette{color.Black, color.White})
	var asJPEG, asGIF bytes.Buffer
	if err := jpeg.Encode(&asJPEG, m, nil); err != nil {
		t.Fatal(err)
	}
	if err := gif.Encode(&asGIF, m, nil); err != nil {
		t.Fatal(err)
	}
	riff := func(kind string, rest ...byte) []byte {
		return append([]byte("RIFF\x20\x00\x00\x00WEBP"+kind+"\x10\x00\x00\x00"), append(rest, make([]byte, 20)...)...)
	}
	for _, c := range []struct {
		want string
		data []byte
	}{
		{"image/jpeg", asJPEG.Bytes()}, {"image/gif", asGIF.Bytes()}, {"image/png", pngOf(t, 1)},
		{"image/webp", riff("VP8 ", 0, 0, 0, 0x9d, 1, 0x2a, 3, 0, 2, 0)},
		{"image/webp", riff("VP8L", 0x2f, 2, 0x40, 0, 0)},
		{"image/webp", riff("VP8X", 0, 0, 0, 0, 2, 0, 0, 1, 0, 0)},
		{"", riff("VP8X", 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)},
		{"", riff("VP8 ", 0, 0, 0, 1, 1, 1, 3, 0, 2, 0)}, {"", []byte("RIFF")},
	} {
		if got, err := imageType(c.data); (err == nil) != (c.want != "") || err == nil && got != c.want {
			t.Errorf("%.20q is %q, %v: want %q", c.data, got, err, c.want)
		}
	}
}
