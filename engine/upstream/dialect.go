package upstream

import (
	"context"
	"net/http"
	"slices"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// Dialect is how one kind of server speaks. It is stateless and safe for concurrent use. Facts
// about a server that Probe learnt are in the Capabilities that every call is given.
type Dialect interface {
	// Kind is the word for it in documents and status: vllm, sglang, llamacpp, openai.
	Kind() string
	// Probe asks the server what it can. An error means that it does not answer, or is of another
	// kind. Missing features are in Capabilities.Missing.
	Probe(ctx context.Context, s *Server) (Capabilities, error)
	// Generate is the request that samples the rest of a response as a stream of events.
	Generate(r Request, caps *Capabilities) (Call, error)
	// Decoder reads the events of one such stream.
	Decoder(r Request, caps *Capabilities) Decoder
	// Abort stops a response by the id of its request, beside closing its connection. It may
	// return before the server has stopped.
	Abort(ctx context.Context, s *Server, id string, caps *Capabilities) error
	// Pause keeps the server from sampling until Resume, for the update that comes next. Running
	// requests go on after Resume, with their cache unless the update flushes it. When it returns nil
	// no token is sampled any more. Both may be repeated.
	Pause(ctx context.Context, s *Server, next Update, caps *Capabilities) error
	Resume(ctx context.Context, s *Server, caps *Capabilities) error
	// Update makes a paused server serve other weights; it returns once they are loaded.
	Update(ctx context.Context, s *Server, u Update, caps *Capabilities) error
	// Version is the label of what the server says that it serves, as Update.Label gave it;
	// empty where it does not say.
	Version(ctx context.Context, s *Server, caps *Capabilities) (string, error)
}

// Pauser is implemented by dialects whose servers may say whether they are paused.
type Pauser interface {
	// Paused reports whether the server is paused; known is false where it does not say.
	Paused(ctx context.Context, s *Server, caps *Capabilities) (paused, known bool, err error)
}

// Restarter is implemented by dialects whose servers take new weights only by being started again.
// Update then is Restart, and every running request has been cut off before.
type Restarter interface {
	// Restart ends the server, starts it with the weights and waits until it answers.
	Restart(ctx context.Context, s *Server, u Update) error
	// Stop ends a server that Restart has started.
	Stop() error
}

// Joiner is implemented by dialects whose servers can take weights in a collective. Update then
// has Group and Tensors, and returns when the server has received them; they are broadcast meanwhile.
type Joiner interface {
	// Join has the server become a member of a group; it returns when the others are there too.
	Join(ctx context.Context, s *Server, g Group, caps *Capabilities) error
	// Part has it leave a group, which may be broken. One that it is not in is left.
	Part(ctx context.Context, s *Server, g Group, caps *Capabilities) error
}

// Templater is implemented by dialects whose servers can render chats and read tokens.
type Templater interface {
	// Render returns the tokens of a chat; messages and tools are JSON in OpenAI's shape. With
	// generation the beginning of the assistant's next message stands at their end.
	Render(ctx context.Context, s *Server, messages, tools []byte, generation bool, caps *Capabilities) ([]int32, error)
	// Encode returns the tokens of a text as it is, without any that stand for its beginning. Decode
	// is the text of tokens without special ones.
	Encode(ctx context.Context, s *Server, text string, caps *Capabilities) ([]int32, error)
	Decode(ctx context.Context, s *Server, tokens []int32, caps *Capabilities) (string, error)
}

// Scorer is implemented by dialects whose servers can say what log-probs tokens have under the
// weights that they serve.
type Scorer interface {
	// Score returns a log-prob for every token but the first: LogprobMissing for one of which the server never says any.
	Score(ctx context.Context, s *Server, tokens []int32, caps *Capabilities) ([]float32, error)
}

// Viewer is implemented by dialects whose servers take media beside token ids. Such a server expands placeholders itself,
// and says with the first event what it has made of the prompt.
type Viewer interface {
	// See finds out how the server takes media of a modality. An error that wraps port.ErrMedia says that it takes none.
	See(ctx context.Context, s *Server, modality string, caps *Capabilities) (Sight, error)
}

// Sight is how a server takes media of one modality.
type Sight struct {
	// Pad is the id that placeholders consist of.
	Pad       int32
	Processor media.Processor
}

// Capabilities are what a server was found to do.
type Capabilities struct {
	// Software is its name and version as it states them, for people: nothing is concluded from it.
	Software string
	// Model is the name by which it knows the model; Vocabulary and Context its sizes, 0 for unknown.
	Model      string
	Vocabulary int
	Context    int
	// Slots is how many responses it samples at once, by its own settings; further ones wait at the
	// server and bring no token meanwhile. 0 for unknown.
	Slots int
	// Uncached: it keeps no prefixes at all, so that there is nothing old to reuse.
	Uncached bool
	// Spare is how many places of its context it leaves free: a response ends by as many earlier.
	Spare int
	// TokenIDs: it takes and returns token ids. Logprobs: it returns the log-prob of every sampled
	// token. ProcessedLogprobs: those are of the distribution that was sampled from, temperature
	// and cuts included; false is of the model's own, or unknown.
	TokenIDs, Logprobs, ProcessedLogprobs bool
	// VersionSpans: it says which weights sampled which tokens.
	VersionSpans bool
	// Pause: sampling can be paused with what is under way kept. Update: it takes new weights while it
	// runs. They come from a directory (UpdateDisk), as an adapter (UpdateLora) or in a collective
	// (UpdateDistributed), to which it brings Ranks, at least 1.
	Pause, UpdateDisk, UpdateLora, UpdateDistributed bool
	Ranks                                            int
	// Flush: its cache of prefixes can be dropped. Salt: it keeps prefixes apart by a salt.
	Flush, Salt bool
	// Template: it renders chats and reads tokens.
	Template bool
	// Score: it returns log-probs of given tokens.
	Score bool
	// Unmarked: its streams have no end mark ([DONE]). A response is whole with the event that sets
	// Delta.Finish, and nothing is read after it.
	Unmarked bool
	// Channels are the side channels of Server.Channels that it says.
	Channels []rows.Form
	// Paths are those that it lists in its own description, nil where it has none.
	Paths map[string]bool
	// Missing is what it lacks, with what to start it with; see Lacks.
	Missing []Missing
	// Private is the dialect's own, learnt in Probe.
	Private any
}

// Missing is something that a server lacks.
type Missing struct {
	// The missing feature and its cost, a clause; Flag is how to start the server with it.
	What, Flag string
	// Delivery is the only one that needs it, empty for something that is lacking on every delivery.
	Delivery Delivery
	// Fatal: nothing can be trained on without it.
	Fatal bool
}

// Request is one call to sample: the rest of a response.
type Request struct {
	// ID names the call at the server; it is made of the rollout's, ends in a terminator, and no
	// other begins with it.
	ID string
	// Session is the rollout's, for caches of prefixes; Salt keeps prefixes of different weights
	// apart, empty where they are not to be.
	Session, Salt string
	// Prompt is everything before the first token that is to be sampled, MaxTokens at least 1.
	Prompt    []int32
	MaxTokens int
	Sampling  port.Sampling
	// Media stand in the prompt, whose ids are expanded.
	Media []media.Item
	// Lora: sample with the adapter of the last Update, not with the model alone.
	Lora bool
	// Priority, lower is earlier; 0 for none.
	Priority int
	// Channels are the side channels that are asked for, Known the first row of passes that is wanted.
	Channels []string
	Known    int
}

// Asks reports whether a side channel is asked for.
func (r *Request) Asks(name string) bool { return slices.Contains(r.Channels, name) }

// Call is an HTTP request to a server.
type Call struct {
	Path   string
	Body   []byte
	Header http.Header
}

// Decoder reads the events of one stream.
type Decoder interface {
	// Event reads the data of one event and adds what is new in it to d, which it does not reset.
	// The stream's end mark never reaches it. An error inside the stream is an error; one that
	// says that the request itself is refused wraps [ErrRefused], every other is tried again. The
	// data is valid during the call only.
	Event(data []byte, d *Delta) error
}

// Delta is what events have brought.
type Delta struct {
	Tokens   []int32
	Logprobs []float32
	Text     string
	// Finish is empty until the response has ended.
	Finish Finish
	// Spans cover tokens of this response (from the request's first sampled one on) where the server
	// says so. They are half-open, in order, perhaps only at the end. An event's spans go on where the
	// last one's ended, or begin again and cover everything so far. They may count from the first
	// token of the request's prompt instead, as the server does.
	Spans []Span
	// Expanded is what the server has made of a prompt with media; nil until it says so.
	Expanded *Expansion
	// MaskLengths and MaskIDs are the ids that a cut left to draw each token from, one length for a token. They are
	// empty where none were asked for.
	MaskLengths, MaskIDs []int32
}

// Expansion is a prompt as the server has read it: all ids, and where the placeholders of media lie among them.
type Expansion struct {
	Prompt []int32
	Places []media.Item
}

// Span is a stretch of sampled tokens that one version made.
type Span struct {
	Label      string
	Start, End int
}

// Finish is why a response has ended.
type Finish string

// Finishes. FinishAbort is a response that was cut off by the server, with what there was.
const (
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
	FinishAbort  Finish = "abort"
)

// Update is what a server is to serve.
type Update struct {
	Version loop.Version
	// Label names the version at the server.
	Label string
	// Dir is a directory in the layout of Hugging Face, as the server sees it; empty on DeliveryDistributed.
	Dir string
	// Group is the collective in which Tensors are broadcast, in their order, on DeliveryDistributed.
	Group   Group
	Tensors []Tensor
	// Cache: salt, flush or keep (config.Engine.Cache).
	Cache string
	// Lora: Dir is an adapter, not a model.
	Lora bool
}
