package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	_ "image/gif" // their headers are read
	_ "image/jpeg"
	_ "image/png"
	"strings"
	"sync"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
)

// Bounds of the images of one request. A body as a whole has the server's own bound.
const (
	mediaMax       = 64
	mediaBytesMost = 20 << 20
	pixelsMost     = 64 << 20
)

// Seer is implemented by templates that render media.
type Seer interface {
	// See returns the id that placeholders of a modality consist of in a rendering, and their processor. A refusal says
	// that no engine takes any.
	See(ctx context.Context, modality string) (pad int32, by media.Processor, err error)
}

// part is a part of a message's content, in the spellings of OpenAI's two APIs and of chat templates.
type contentPart struct {
	Type     string          `json:"type"`
	Text     json.RawMessage `json:"text"`
	ImageURL json.RawMessage `json:"image_url"`
	Image    json.RawMessage `json:"image"`
	Detail   string          `json:"detail"`
}

// imageFields are those that a part of an image may have: others would change what the policy sees.
var imageFields = map[string]bool{"type": true, "image_url": true, "image": true, "detail": true}

// readImage reads a part that is an image, at a place of the request.
func (req *request) readImage(raw json.RawMessage, part *contentPart, place string) (media.Item, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return media.Item{}, invalid(place, "%s is no part", place)
	}
	for name := range fields {
		if !imageFields[name] {
			return media.Item{}, invalid(place, "%s has the field %.40q, which changes what is seen of an image: set it at the server, so that every image of the run is read alike", place, name)
		}
	}
	source := part.ImageURL
	if part.Type == "image" && !given(source) {
		source = part.Image
	}
	url, detail := "", part.Detail
	if json.Unmarshal(source, &url) != nil {
		var object struct {
			URL    string `json:"url"`
			Detail string `json:"detail"`
		}
		decoder := json.NewDecoder(bytes.NewReader(source))
		decoder.DisallowUnknownFields()
		if decoder.Decode(&object) != nil {
			return media.Item{}, invalid(place, "%s names no image: want a data: URL in image_url.url", place)
		}
		url, detail = object.URL, object.Detail
	}
	if detail != "" && detail != "auto" {
		req.override("image_url.detail")
	}
	data, err := dataOf(url, place)
	if err != nil {
		return media.Item{}, err
	}
	kind, err := imageType(data)
	if err != nil {
		return media.Item{}, invalid(place, "%s is an image that cannot be read: %v", place, err)
	}
	return media.Item{Modality: media.Image, Hash: sha256.Sum256(data), Type: kind, Size: int64(len(data)), Data: data}, nil
}

// override names a setting of the client that no rollout is sampled with.
func (req *request) override(name string) {
	for _, known := range req.overridden {
		if known == name {
			return
		}
	}
	req.overridden = append(req.overridden, name)
}

// dataOf returns the bytes of a data: URL. What lies elsewhere is not fetched: it may change until it is trained on, and a
// client could have the server ask any address.
func dataOf(url, place string) ([]byte, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	if !strings.EqualFold(scheme, "data") {
		return nil, invalid(place, "%s is an image at a URL of scheme %.20q: nothing is fetched, because what lies there may change before it is trained on. Send the bytes in a data: URL", place, scheme)
	}
	head, text, ok := strings.Cut(rest, ",")
	if !ok || !strings.HasSuffix(strings.ToLower(head), ";base64") {
		return nil, invalid(place, "%s is no data: URL of base64: want data:image/png;base64,…", place)
	}
	if base64.StdEncoding.DecodedLen(len(text)) > mediaBytesMost {
		return nil, protocol.Refuse(protocol.CodeTooLarge, "%s is an image of about %d bytes: want at most %d", place, base64.StdEncoding.DecodedLen(len(text)), mediaBytesMost).With("field", place)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, invalid(place, "%s is no base64: %v", place, err)
	}
	return data, nil
}

// imageType reads the header of an image, whatever its URL says of it.
func imageType(data []byte) (string, error) {
	if width, height, ok := webp(data); ok {
		return "image/webp", sized(width, height)
	}
	config, kind, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return "", fmt.Errorf("%d bytes that are no PNG, JPEG, WebP or GIF: %w", len(data), err)
	}
	return "image/" + kind, sized(config.Width, config.Height)
}

func sized(width, height int) error {
	if width < 1 || height < 1 || width > pixelsMost/height {
		return fmt.Errorf("it has %d by %d pixels: want at least one, and at most %d", width, height, pixelsMost)
	}
	return nil
}

// webp reads the size of a WebP image, lossy, lossless or extended.
func webp(data []byte) (width, height int, ok bool) {
	if len(data) < 30 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return 0, 0, false
	}
	switch b := data[20:]; string(data[12:16]) {
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(b[6:])) & 0x3fff, int(binary.LittleEndian.Uint16(b[8:])) & 0x3fff, b[3] == 0x9d && b[4] == 0x01 && b[5] == 0x2a
	case "VP8L":
		bits := binary.LittleEndian.Uint32(b[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, b[0] == 0x2f
	case "VP8X":
		return int(b[4]) + int(b[5])<<8 + int(b[6])<<16 + 1, int(b[7]) + int(b[8])<<8 + int(b[9])<<16 + 1, true
	}
	return 0, 0, false
}

// pictures keeps the bytes of media by their hash, each once, for all conversations that have them.
type pictures struct {
	// mark begins what stands in a message in place of an image's bytes. No client knows it.
	mark  string
	most  int64
	mu    sync.Mutex
	kept  map[media.Hash]*picture
	bytes int64
	// holders are the conversations that hold some, each with the number at which it came.
	holders map[*conversation]int64
	came    int64
}

// picture is the bytes of one medium, and how many conversations have it.
type picture struct {
	item media.Item
	held int
}

// hold keeps the media of a request for a conversation, until it is forgotten.
func (p *pictures) hold(c *conversation, req *request) error {
	for i := range req.media {
		for k := range req.media[i] {
			if err := p.take(c, &req.media[i][k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pictures) take(c *conversation, m *media.Item) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.released {
		return protocol.Refuse(protocol.CodeExpired, "the rollout is over: claim another")
	}
	known := p.kept[m.Hash]
	if known == nil {
		if err := p.admit(c, m.Size); err != nil {
			return err
		}
		known = &picture{item: *m}
		p.kept[m.Hash], p.bytes = known, p.bytes+m.Size
	}
	m.Data = known.item.Data
	if !c.pictures[m.Hash] {
		c.pictures[m.Hash] = true
		known.held++
	}
	if p.holders[c] == 0 {
		p.came++
		p.holders[c] = p.came
	}
	return nil
}

// admit says whether a conversation may hold so many bytes more. Where all together have too many, the one that has held some
// for longest goes on: else all could wait for each other. Alone it may hold as many as all.
func (p *pictures) admit(c *conversation, adds int64) error {
	if p.bytes+adds <= p.most {
		return nil
	}
	own := adds
	for hash := range c.pictures {
		own += p.kept[hash].item.Size
	}
	switch {
	case own > p.most:
		return protocol.Refuse(protocol.CodeTooLarge, "the images of this rollout have %d bytes, of at most %d: send smaller ones", own, p.most).With("bytes_max", p.most)
	case !p.eldest(c):
		return protocol.Refuse(protocol.CodeBusy, "the images of all conversations together have %d bytes, of at most %d: send the call again", p.bytes, p.most).With("bytes_max", p.most)
	}
	return nil
}

// eldest reports whether no other conversation has held media for longer.
func (p *pictures) eldest(c *conversation) bool {
	own := p.holders[c]
	for _, came := range p.holders {
		if own == 0 || came < own {
			return false
		}
	}
	return true
}

// release forgets what a conversation has held.
func (p *pictures) release(c *conversation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for hash := range c.pictures {
		if known := p.kept[hash]; known != nil {
			if known.held--; known.held == 0 {
				delete(p.kept, hash)
				p.bytes -= known.item.Size
			}
		}
	}
	clear(c.pictures)
	delete(p.holders, c)
	c.released = true
}

// spelled is a chat with the bytes of its media in the place of the words for them.
func (p *pictures) spelled(messages []byte) []byte {
	if !bytes.Contains(messages, []byte(p.mark)) {
		return messages
	}
	var out []byte
	for {
		before, rest, found := bytes.Cut(messages, []byte(p.mark))
		out = append(out, before...)
		if !found {
			return out
		}
		digits := rest[:min(2*sha256.Size, len(rest))]
		messages = rest[len(digits):]
		hash, ok := media.ParseHash(string(digits))
		p.mu.Lock()
		known := p.kept[hash]
		p.mu.Unlock()
		if !ok || known == nil { // a template refuses it
			out = append(out, digits...)
			continue
		}
		out = append(append(append(out, "data:"...), known.item.Type...), ";base64,"...)
		out = base64.StdEncoding.AppendEncode(out, known.item.Data)
	}
}

// listed are the media of a chat's messages from one on.
func (req *request) listed(from int) (out []media.Item) {
	for _, items := range req.media[min(from, len(req.media)):] {
		out = append(out, items...)
	}
	return out
}

// place finds where the media of messages from one on stand in ids that were rendered of them, which begin at a place of
// the prompt.
func (g *Gateway) place(ctx context.Context, req *request, from int, ids []int32, at int) ([]media.Item, error) {
	items := req.listed(from)
	if len(items) == 0 {
		return nil, nil
	}
	seer, ok := g.templates.Templates.(Seer)
	if !ok {
		return nil, invalid("messages", "the chat has %d images, and no engine of this run takes any: none is left out in silence", len(items))
	}
	pad, by, err := seer.See(ctx, media.Image)
	if err != nil {
		return nil, rendering(err, "finding out how engines take images")
	}
	for i := range items {
		items[i].Processor = by
	}
	placed, err := media.Find(items, ids, pad, int32(at))
	if err != nil {
		return nil, invalid("messages", "the images cannot be placed: %v", err)
	}
	return placed, nil
}

// checkParts reads the parts of a message, and puts a word in the place of every image's bytes.
func (req *request) checkParts(i int, raw json.RawMessage, options Options) (json.RawMessage, []media.Item, error) {
	at := fmt.Sprintf("messages[%d]", i)
	var m struct {
		Content []json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return nil, nil, invalid(at+".content", "%s.content is neither a text nor a list of parts", at)
	}
	var items []media.Item
	for j := range m.Content {
		var part contentPart
		place := fmt.Sprintf("%s.content[%d]", at, j)
		if json.Unmarshal(m.Content[j], &part) != nil {
			return nil, nil, invalid(at+".content", "%s.content is neither a text nor a list of parts", at)
		}
		switch part.Type {
		case "text":
			if len(part.Text) == 0 || part.Text[0] != '"' {
				return nil, nil, invalid(place+".text", "%s.text is no text: a part of type text says what it says there", place)
			}
		case "image_url", "input_image", "image":
			item, err := req.readImage(m.Content[j], &part, place)
			if err != nil {
				return nil, nil, err
			}
			items = append(items, item)
			m.Content[j] = json.RawMessage(`{"type":"image_url","image_url":{"url":"` + options.mark + item.Hash.String() + `"}}`)
		default:
			return nil, nil, invalid(at+".content", "%s.content has a part of type %.40q: want text or image_url, which is all that is recorded", at, part.Type)
		}
	}
	if items == nil {
		return raw, nil, nil
	}
	var message map[string]json.RawMessage
	content, err := json.Marshal(m.Content)
	if err == nil {
		err = json.Unmarshal(raw, &message)
	}
	if err != nil {
		return nil, nil, invalid(at, "%s is no message: %v", at, err)
	}
	message["content"] = content
	raw, err = json.Marshal(message)
	return raw, items, err
}

// mediaBytes is how many bytes of a body are those of media.
func mediaBytes(text []byte) (n int) {
	for {
		_, rest, found := bytes.Cut(text, []byte(";base64,"))
		if !found {
			return n
		}
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			return n
		}
		n, text = n+end, rest[end:]
	}
}
