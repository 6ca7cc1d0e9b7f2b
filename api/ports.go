package api

import (
	"context"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// Every method returns a *protocol.Refusal for what a client did wrong or has to do.

// Body is a reply that is written as it lies: a batch or a file.
type Body = protocol.Body

// Trainers is the trainer's side of the queue.
type Trainers interface {
	// Connect tells a trainer that has started where the run stands. A lease that it held goes back.
	Connect(ctx context.Context, req protocol.ConnectRequest) (protocol.ConnectReply, error)
	// Lease waits for a batch, or this rank's share. A nil body without an error means that none came
	// in time; ErrRunEnded that none will.
	Lease(ctx context.Context, req protocol.LeaseRequest) (Body, error)
	// Ready waits for groups that are ready, and lists references to them.
	Ready(ctx context.Context, req protocol.ReadyRequest) (protocol.ReadyReply, error)
	// Group returns the body of a group that is ready, or in training.
	Group(ctx context.Context, id loop.GroupID) (Body, error)
	// Channel returns the rows of one side channel of a share that is leased.
	Channel(ctx context.Context, lease loop.LeaseID, name string, req protocol.ChannelRequest) (Body, error)
	// Medium returns the bytes of an image, or another medium, of such a share, by their SHA-256.
	Medium(ctx context.Context, lease loop.LeaseID, hash string, req protocol.ChannelRequest) (Body, error)
	Renew(ctx context.Context, lease loop.LeaseID, req protocol.RenewRequest) (protocol.RenewReply, error)
	Ack(ctx context.Context, lease loop.LeaseID, req protocol.AckRequest) (protocol.AckReply, error)
	Nack(ctx context.Context, lease loop.LeaseID, req protocol.NackRequest) error
	// Publish takes the files in the order of the request from next, which returns io.EOF after the last.
	Publish(ctx context.Context, req protocol.PublishRequest, next func() (name string, content io.Reader, err error)) (protocol.PublishReply, error)
}

// Versions reads published weights.
type Versions interface {
	// Newest is the newest committed version that has weights, loop.NoVersion if there is none.
	Newest() loop.Version
	// ManifestText is the manifest's file.
	ManifestText(ctx context.Context, version loop.Version) ([]byte, error)
	// OpenFile opens a file of a version at an offset; the size is the whole file's.
	OpenFile(ctx context.Context, version loop.Version, name string, offset int64) (content io.ReadCloser, size int64, err error)
}

// Rollouts is the environment workers' side.
type Rollouts interface {
	// Claim waits for rollouts to play; none without an error means that none came in time.
	Claim(ctx context.Context, req protocol.ClaimRequest) (protocol.Claims, error)
	Sample(ctx context.Context, id string, req protocol.SampleRequest) (protocol.SampleReply, error)
	Touch(ctx context.Context, id string, req protocol.TouchRequest) (protocol.TouchReply, error)
	// Finish returns when the rollout is durable.
	Finish(ctx context.Context, id string, req protocol.FinishRequest) (protocol.FinishReply, error)
	// Lasting returns the error of a call that names a rollout, or one for now where it may go on at another process. It may wait.
	Lasting(ctx context.Context, id string, err error) error
}

// Meetings coordinates collectives.
type Meetings interface {
	Join(ctx context.Context, name string, req protocol.RendezvousRequest) (protocol.RendezvousReply, error)
}

// Receivers is the side of engines' stages on other nodes.
type Receivers interface {
	// Next takes a receiver's word and waits for what it is to do; Seq 0 is nothing.
	Next(ctx context.Context, name string, req protocol.ReceiverRequest) (protocol.ReceiverReply, error)
}

// Senders is the side of the process from which engines take their tensors by a collective.
type Senders interface {
	// Next takes the sender's word and waits for what it is to do.
	Next(ctx context.Context, name string, req protocol.SenderRequest) (protocol.SenderReply, error)
}

// Plane is the control plane as a whole.
type Plane interface {
	// Status is made of copies; it may be called often.
	Status() protocol.Status
	// Engines are the versions that engines and their stages serve.
	Engines() []protocol.EngineVersion
	// Ready reports whether requests can be served, and why not.
	Ready() error
	// Subscribe sends a JSON object for every train step and every change of state until the context
	// ends. A subscriber that does not keep up is dropped: its channel is closed.
	Subscribe(ctx context.Context) <-chan []byte
}

// Settings moves what of a run's rules may be moved while it goes on.
type Settings interface {
	// RequestSetting asks for a setting's value; the run takes it as far as its range permits.
	RequestSetting(name string, value float64) error
}

// Ports is what the server is made of. A nil port's paths are CodeNotFound with a message that says why.
type Ports struct {
	Trainers  Trainers
	Versions  Versions
	Rollouts  Rollouts
	Meetings  Meetings
	Receivers Receivers
	Senders   Senders
	Settings  Settings
	// Signing signs the keys of claims, so that those of a process before hold; nil for a secret of this process.
	Signing *[32]byte
	// Chunks serves the paths of package transfer's Source.
	Chunks http.Handler
	// View serves what the browser's pages ask for, below /api/v1/view/.
	View http.Handler
	// Gateway serves OpenAI's paths under /v1.
	Gateway http.Handler
	// Sandboxes has the metrics of those that rollouts are played in; nil where there are none.
	Sandboxes prometheus.Collector
	Plane     Plane
}

// ErrRunEnded is returned by ports that wait for work when there will be none: the run is done.
var ErrRunEnded = protocol.ErrRunEnded
