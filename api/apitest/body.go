package apitest

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
)

// chat is a request of an agent, as far as the gateway reads more than one kind of value.
type chat struct {
	Model    string `json:"model"`
	Messages []struct {
		Role      string `json:"role"`
		Content   string `json:"content"`
		Name      string `json:"name"`
		ToolCalls []struct {
			ID       string `json:"id"`
			Type     string `json:"type"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Prompt         []int32        `json:"prompt"`
	MaxTokens      int            `json:"max_tokens"`
	N              int            `json:"n"`
	Temperature    float64        `json:"temperature"`
	TopP           float64        `json:"top_p"`
	Stop           []string       `json:"stop"`
	StopTokens     []int32        `json:"stop_token_ids"`
	Stream         bool           `json:"stream"`
	StreamOptions  map[string]any `json:"stream_options"`
	Logprobs       bool           `json:"logprobs"`
	ResponseFormat map[string]any `json:"response_format"`
	Tools          []struct {
		Type     string         `json:"type"`
		Function map[string]any `json:"function"`
	} `json:"tools"`
}

// messages are the requests of the routes that take a body. TestMessages holds them to what the server says that it wants.
var messages = map[string]reflect.Type{
	"POST /api/v1/trainers/connect":                reflect.TypeFor[protocol.ConnectRequest](),
	"POST /api/v1/batches/lease":                   reflect.TypeFor[protocol.LeaseRequest](),
	"POST /api/v1/groups/ready":                    reflect.TypeFor[protocol.ReadyRequest](),
	"POST /api/v1/batches/{lease}/channels/{name}": reflect.TypeFor[protocol.ChannelRequest](),
	"POST /api/v1/batches/{lease}/media/{name}":    reflect.TypeFor[protocol.ChannelRequest](),
	"POST /api/v1/batches/{lease}/renew":           reflect.TypeFor[protocol.RenewRequest](),
	"POST /api/v1/batches/{lease}/ack":             reflect.TypeFor[protocol.AckRequest](),
	"POST /api/v1/batches/{lease}/nack":            reflect.TypeFor[protocol.NackRequest](),
	"POST /api/v1/weights":                         reflect.TypeFor[protocol.PublishRequest](),
	"POST /api/v1/rollouts/claim":                  reflect.TypeFor[protocol.ClaimRequest](),
	"POST /api/v1/rollouts/{id}/sample":            reflect.TypeFor[protocol.SampleRequest](),
	"POST /api/v1/rollouts/{id}/touch":             reflect.TypeFor[protocol.TouchRequest](),
	"POST /api/v1/rollouts/{id}/finish":            reflect.TypeFor[protocol.FinishRequest](),
	"POST /api/v1/rendezvous/{name}":               reflect.TypeFor[protocol.RendezvousRequest](),
	"POST /api/v1/receivers/{name}":                reflect.TypeFor[protocol.ReceiverRequest](),
	"POST /api/v1/senders/{name}":                  reflect.TypeFor[protocol.SenderRequest](),
	"POST /api/v1/settings/{name}":                 reflect.TypeFor[protocol.SettingRequest](),
	"POST /v1/chat/completions":                    reflect.TypeFor[chat](),
	"POST /v1/completions":                         reflect.TypeFor[chat](),
}

// Message is the type of a route's request, nil where the route takes none.
func Message(pattern string) reflect.Type { return messages[pattern] }

// node is a value of a JSON document that is being made.
type node struct {
	of   reflect.Type
	text string // of a leaf
	// names has the members' names of an object; items are its values, or the entries of a list.
	names []string
	items []*node
}

// example is a plausible document of a type, with names that no client of the run has.
func example(of reflect.Type, secret string) *node {
	n := &node{of: of}
	switch of.Kind() {
	case reflect.Pointer:
		n = example(of.Elem(), secret)
	case reflect.Struct:
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "-" || !field.IsExported() {
				continue
			}
			value := example(field.Type, secret)
			if name == "secret" && secret != "" {
				value.text = quote(secret)
			}
			n.names, n.items = append(n.names, name), append(n.items, value)
		}
	case reflect.Slice:
		n.items = []*node{example(of.Elem(), secret)}
	case reflect.Map:
		n.names, n.items = []string{"a"}, []*node{{of: of.Elem(), text: "1"}}
	case reflect.String:
		n.text = `"wrong"`
	case reflect.Bool:
		n.text = "false"
	default:
		n.text = "1"
	}
	return n
}

func quote(text string) string {
	raw, _ := json.Marshal(text) // a text is always JSON
	return string(raw)
}

func (n *node) write(b *strings.Builder) {
	switch {
	case n.text != "":
		b.WriteString(n.text)
		return
	case n.names != nil || n.of != nil && n.of.Kind() != reflect.Slice:
		b.WriteByte('{')
	default:
		b.WriteByte('[')
	}
	closing := byte(']')
	for i, item := range n.items {
		if i > 0 {
			b.WriteByte(',')
		}
		if i < len(n.names) {
			b.WriteString(quote(n.names[i]) + ":")
		}
		item.write(b)
	}
	if n.names != nil || n.of != nil && n.of.Kind() != reflect.Slice {
		closing = '}'
	}
	b.WriteByte(closing)
}

func (n *node) String() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

// all are a node and everything in it.
func (n *node) all() []*node {
	list := []*node{n}
	for _, item := range n.items {
		list = append(list, item.all()...)
	}
	return list
}

// Values that stand where others are wanted. None of them is taken for its kind by a reader of JSON.
var (
	noTexts   = []string{"1", "true", "[]", "{}", "[1]", "-0.5"}
	noNumbers = []string{`"1"`, "true", "[]", "{}", "1e400", "-1e400", "NaN", "Infinity", "01", "+1", ".5", "1.", "0x10", `"NaN"`}
	noWholes  = []string{"1.5", "1e400", "9223372036854775808", "-9223372036854775809", `""`, "1e-1", "NaN"}
	noBools   = []string{"0", `"true"`, "[]", "{}", "TRUE"}
	noLists   = []string{"1", "{}", "true", `[`, `{"0":1}`}
	noObjects = []string{"1", "[]", `"x"`, "true", `[{}]`, "{"}
)

// odd are values that some fields may take.
var odd = []string{
	"null", "-1", "0", "2147483648", "-9223372036854775808", "9223372036854775807", "1e308", "5e-324", "-0", `""`, `"\u0000"`, `"\ud800"`, "\"\xff\xfe\"",
	`"\u202e\u001b[31m\r\n"`, `"../../etc/passwd"`, `"g1-s0-a1"`, `"latest"`, `[]`, `{}`, "[null]", "[[[[]]]]", `"true"`,
}

// breakField puts a value where another kind is wanted: the server must refuse it.
func (n *node) breakField(r *rand.Rand) {
	nodes := slices.DeleteFunc(n.all(), func(x *node) bool { return x.of == nil || x.of.Kind() == reflect.Interface })
	at := nodes[r.IntN(len(nodes))]
	values := noNumbers
	switch at.of.Kind() {
	case reflect.String:
		values = noTexts
	case reflect.Bool:
		values = noBools
	case reflect.Slice:
		values = noLists
	case reflect.Struct, reflect.Map:
		values = noObjects
	case reflect.Float32, reflect.Float64:
	default:
		if r.IntN(2) == 0 {
			values = noWholes
		}
	}
	at.text = values[r.IntN(len(values))]
}

// bend puts an odd value somewhere, or leaves a member out. The server may take the result.
func (n *node) bend(r *rand.Rand) {
	nodes := n.all()
	at := nodes[r.IntN(len(nodes))]
	switch r.IntN(5) {
	case 0:
		if len(at.names) > 0 {
			i := r.IntN(len(at.names))
			at.names, at.items = slices.Delete(at.names, i, i+1), slices.Delete(at.items, i, i+1)
		}
	case 1:
		if len(at.names) > 0 { // a name twice, or with other letters
			i := r.IntN(len(at.names))
			name := at.names[i]
			if r.IntN(2) == 0 {
				name = strings.ToUpper(name)
			}
			at.names, at.items = append(at.names, name), append(at.items, &node{text: odd[r.IntN(len(odd))]})
		}
	case 2:
		at.text = quote(strings.Repeat("é", 1+r.IntN(5000)))
	default:
		at.text = odd[r.IntN(len(odd))]
	}
}

// spoil makes a document that is no JSON object of its message, whatever the message.
func spoil(r *rand.Rand, text string) string {
	switch r.IntN(9) {
	case 0:
		return text[:r.IntN(len(text))]
	case 1:
		return text + []string{"{}", "]", "x", text}[r.IntN(4)]
	case 2:
		return `{"no_such_field":1,` + text[1:]
	case 3:
		deep := 33 + r.IntN(2000)
		return strings.TrimSuffix(text, "}") + `,"x":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + "}"
	case 4:
		return "[" + text + "]"
	case 5:
		return []string{"", " ", "null", "1", `"x"`, "true", "\xef\xbb\xbf" + text, "\x00", "{", "{]", `{"a"}`, "{,}", "<xml/>", "a=1&b=2"}[r.IntN(14)]
	case 6:
		return strings.ReplaceAll(text, ":", "=")
	case 7:
		return strings.ReplaceAll(text, `"`, "'")
	}
	return strings.Repeat(" ", r.IntN(3000)) + "\x1f\x8b" + text
}
