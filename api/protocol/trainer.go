package protocol

import (
	"errors"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
)

// ConnectRequest is the first thing that a trainer says, with every start of its
// process: POST /api/v1/trainers/connect.
type ConnectRequest struct {
	// Trainer names it; a restarted one keeps its name. Letters, digits, '.', '_' and '-'.
	Trainer string `json:"trainer"`
	// Version is the version of the weights that it holds, by its own checkpoint; -1 if it has none.
	Version loop.Version `json:"version"`
	// WorldSize is the number of its data-parallel ranks; 0 means 1.
	WorldSize int `json:"world_size"`
	// Rank that connects. Every rank may. One that holds a share of the leased batch gives the whole
	// batch back by connecting anew, for its results are gone.
	Rank int `json:"rank,omitempty"`
	// Caller is set by the server, for what it says of a trainer that takes another's place.
	Caller Caller `json:"-"`
}

// Actions of a trainer after it has connected.
const (
	// ActionTrain: it holds the newest version; it may lease.
	ActionTrain = "train"
	// ActionLoad: it is to load version Load, weights and optimizer, from its files, and may then lease.
	ActionLoad = "load"
	// ActionRepublish: it holds an older version whose state it wants to go on from. It either loads
	// version Load as under ActionLoad, or publishes what it holds as the next version (PublishRequest.RestoredFrom).
	ActionRepublish = "republish"
	// ActionInitialize: nothing is published yet. It publishes version 0, from which engines start.
	ActionInitialize = "initialize"
)

// ConnectReply says where the run stands.
type ConnectReply struct {
	// Action is one of the above.
	Action string `json:"action"`
	// Version is the newest that is committed, -1 for none; Next the one that a publish makes.
	Version loop.Version `json:"version"`
	Next    loop.Version `json:"next"`
	// Load is the version whose files ActionLoad and ActionRepublish mean: the newest that has weights, -1 for
	// none. Where it is below Version, versions after it were acknowledged without weights and are lost with the
	// trainer that held them. The loaded or held state must then be published as Next before a batch is leased.
	Load loop.Version `json:"load"`
	// Optimizer: that version has the optimizer's state, too.
	Optimizer bool `json:"optimizer"`
	// SyncEvery: versions that are multiples of it go to the engines. Others may be acknowledged without weights.
	SyncEvery int `json:"sync_every"`
	// LeaseS is how long a lease lasts without being renewed.
	LeaseS float64 `json:"lease_s"`
	// Steps is the number of train steps of the run, 0 for no end.
	Steps int `json:"steps"`
	// Run names the run; Config is its document, for what trainer and run must agree on.
	Run    string `json:"run"`
	Config string `json:"config,omitempty"`
}

// LeaseRequest asks for the next batch, or for this rank's share of it:
// POST /api/v1/batches/lease. A rank that holds one gets the same again.
// 204 means that none was ready within WaitS; 205 that the run has ended.
type LeaseRequest struct {
	Trainer string `json:"trainer"`
	// Rank and WorldSize divide a batch by whole groups, balanced by tokens; 0 and 0 mean all of it.
	Rank      int `json:"rank"`
	WorldSize int `json:"world_size"`
	// WaitS is how long to wait for a batch, at most 60.
	WaitS float64 `json:"wait_s"`
	// After and AfterAttempt name the batch that this rank has finished its share of, 0 for none. The
	// batch is not given out to the rank again while another rank's publish of it is awaited.
	After        loop.LeaseID `json:"after,omitempty"`
	AfterAttempt int32        `json:"after_attempt,omitempty"`
	// Kind is "train", the default, or "validation": held-out prompts answered greedily by the
	// newest served version. A validation batch is not leased and not acknowledged.
	Kind string `json:"kind,omitempty"`
	// Prompts bounds a validation batch; 0 means the run's setting.
	Prompts int `json:"prompts,omitempty"`
	// Form is "body", the default, or "references": the answer is then a ReferencesReply, and the rank fetches each group
	// of its share by GET /api/v1/groups/{group}. A validation batch has no references.
	Form string `json:"form,omitempty"`
}

// Forms of a batch.
const (
	FormBody       = "body"
	FormReferences = "references"
)

// ReferencesReply is a share by reference: the lease as the header of its body has it, and the groups in the same order.
type ReferencesReply struct {
	Lease
	References []GroupReference `json:"references"`
}

// GroupReference names the body of a finished group, GET /api/v1/groups/{group}. The body is a safetensors file like that
// of a batch of this group alone, without side channels and media. It never changes, and can be fetched before the group
// is leased.
type GroupReference struct {
	GroupStamp
	Tokens int `json:"tokens"`
	// Bytes is the size of the body, SHA256 its hash in hexadecimal digits.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// ReadyRequest asks which groups are ready to be trained, or in training, so that a node can fetch them ahead:
// POST /api/v1/groups/ready. It is no word of a trainer, and needs no lease.
type ReadyRequest struct {
	// After is Next of the last reply, empty for all groups.
	After string `json:"after,omitempty"`
	// WaitS is how long to wait for a group, at most 60.
	WaitS float64 `json:"wait_s"`
}

// ReadyReply lists groups in the order in which they became ready, at most some hundred. None came within WaitS if it is empty.
type ReadyReply struct {
	Groups []GroupReference `json:"groups"`
	// Next is After of the next call. Where the control plane was started anew since After, the list begins again.
	Next string `json:"next"`
}

// Kinds of batches.
const (
	KindTrain      = "train"
	KindValidation = "validation"
)

// Lease is what the header of a batch says of it.
type Lease struct {
	// Lease and Attempt name the batch; both are 0 for validation.
	Lease   loop.LeaseID `json:"lease"`
	Attempt int32        `json:"attempt"`
	// Kind is KindTrain or KindValidation.
	Kind string `json:"kind"`
	// Version is the one that the step starts from; training it makes Version+1.
	Version loop.Version `json:"version"`
	// DeadlineS is how long the lease lasts from now without being renewed.
	DeadlineS float64 `json:"deadline_s"`
	// Rank and WorldSize are of this share. Tokens, Rollouts and Groups are of the whole batch, over
	// all shares, so that every rank can normalise its loss alike. ResponseTokens are those with mask
	// 1.
	Rank           int `json:"rank"`
	WorldSize      int `json:"world_size"`
	Tokens         int `json:"tokens"`
	ResponseTokens int `json:"response_tokens"`
	Rollouts       int `json:"rollouts"`
	Groups         int `json:"groups"`
	// Sequences of the whole batch, where a rollout of it has several; else 0, and there are as many as rollouts.
	Sequences int `json:"sequences,omitempty"`
	// Agents are the names of those who speak in the whole batch's sequences, sorted. The tensor agents has for every
	// sequence the place of its agent here, and -1 for none. Sequences of agents that are not trained are left out of
	// the batch and of all its figures.
	Agents []string `json:"agents,omitempty"`
	// StalenessMean and StalenessMax are of the whole batch's groups, in versions.
	StalenessMean float64      `json:"staleness_mean"`
	StalenessMax  loop.Version `json:"staleness_max"`
	// Stamps are the groups of this share, in its order.
	Stamps []GroupStamp `json:"stamps"`
	// Channels are the side channels of this share, which a rank fetches one by one if it wants them.
	Channels []ChannelSummary `json:"channels,omitempty"`
	// Media stand among the tokens of this share, in their order. A rank fetches the bytes of each hash if it wants them.
	// Processors are what has made their placeholders.
	Media      []Medium          `json:"media,omitempty"`
	Processors []media.Processor `json:"processors,omitempty"`
}

// Medium is an image, or another medium, of a sequence of a share. Its ids are expanded, as the engine has read them.
type Medium struct {
	// Sequence is the place of its sequence in the share. Offset is the place of its placeholder in the sequence, and
	// Length the number of ids.
	Sequence int   `json:"sequence"`
	Offset   int32 `json:"offset"`
	Length   int32 `json:"length"`
	// Modality is image. SHA256 names the bytes, Type is their media type and Size their number.
	Modality string `json:"modality"`
	SHA256   string `json:"sha256"`
	Type     string `json:"type"`
	Size     int64  `json:"size"`
	// Processor is the place in Processors of what has made the placeholder.
	Processor int `json:"processor"`
}

// ChannelSummary is a side channel of a share: its form, the rows that there are, and those that are not.
type ChannelSummary struct {
	channel.Header
	Rows   int `json:"rows"`
	Absent int `json:"absent"`
	// Lost is of the status alone: those of Rows that the store could not give when they were asked for.
	Lost int `json:"lost,omitempty"`
}

// ChannelRequest asks for the rows of a side channel of a share that is leased:
// POST /api/v1/batches/{lease}/channels/{name}. The bytes of a medium are asked for alike:
// POST /api/v1/batches/{lease}/media/{sha256}.
type ChannelRequest struct {
	Trainer string `json:"trainer"`
	Rank    int    `json:"rank"`
	// WorldSize is the number of ranks that the share is one of; 0 for the one that the trainer is known to have. After a
	// restart of the control plane that number is not known.
	WorldSize int   `json:"world_size,omitempty"`
	Attempt   int32 `json:"attempt"`
}

// GroupStamp is a group's part in the definition of staleness.
type GroupStamp struct {
	Group        loop.GroupID `json:"group"`
	StartVersion loop.Version `json:"start_version"`
	ReadyVersion loop.Version `json:"ready_version"`
	// Rollouts of it in this share.
	Rollouts int `json:"rollouts"`
}

// RenewRequest keeps a lease: POST /api/v1/batches/{lease}/renew. It goes back when any of
// the ranks that took a share is silent for longer than the lease lasts.
type RenewRequest struct {
	Trainer string `json:"trainer"`
	Attempt int32  `json:"attempt"`
	Rank    int    `json:"rank"`
}

// RenewReply says how long the lease lasts from now.
type RenewReply struct {
	DeadlineS float64 `json:"deadline_s"`
}

// AckRequest ends a train step: POST /api/v1/batches/{lease}/ack. After a publish that names
// the lease it changes nothing: that ended the step, and brought the metrics. Without one it commits the batch as a version without
// weights, which is refused where that version is to be synced (ConnectReply.SyncEvery).
type AckRequest struct {
	Trainer string `json:"trainer"`
	Attempt int32  `json:"attempt"`
	// ForwardVersion is the version of the weights that the step's forward pass used, and
	// StepVersion of those the optimizer changed; a mismatch is refused. Both -1 if not stamped.
	ForwardVersion loop.Version `json:"forward_version"`
	StepVersion    loop.Version `json:"step_version"`
	// Metrics are the step's: loss, grad_norm, clip_fraction, active_clip_fraction, mean_log_ratio,
	// effective_sample_size, or any name of the trainer's own. Finite numbers only.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// AckReply says which version the batch made.
type AckReply struct {
	Version loop.Version `json:"version"`
}

// NackRequest gives a batch back untrained: POST /api/v1/batches/{lease}/nack.
type NackRequest struct {
	Trainer string `json:"trainer"`
	Attempt int32  `json:"attempt"`
	// Reason is for the log. Failed counts it as a failed attempt of the step, of which a run survives
	// a bounded number. Otherwise it goes back as if it had never been leased.
	Reason string `json:"reason,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

// CheckName reports what is wrong with a trainer's or worker's name.
func CheckName(name string) error {
	if name == "" || len(name) > 128 {
		return errors.New("want 1 to 128 characters")
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return errors.New("want letters, digits, '.', '_' and '-' only")
		}
	}
	return nil
}

// classMax bounds a class of failures, in bytes.
const classMax = 40

// CheckClass reports what is wrong with the class of a failure; an empty one is none.
func CheckClass(class string) error {
	if len(class) > classMax {
		return errors.New("want at most 40 characters")
	}
	for _, c := range []byte(class) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return errors.New("want small letters, digits and '_' only")
		}
	}
	return nil
}
