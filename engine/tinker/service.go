package tinker

import (
	"context"

	service "github.com/headway-rl/headway/internal/tinker"
)

// Service is what the engine asks of a service. It is safe for concurrent use.
type Service interface {
	// NewSampler samples from what was saved under path. Its error wraps [service.ErrDown] where the service
	// cannot be reached, [service.ErrGone] where it does not know the path.
	NewSampler(ctx context.Context, path string) (Sampler, error)
}

// Sampler samples from one version. It is safe for concurrent use.
type Sampler interface {
	// Sample samples one sequence, and returns soon after ctx has ended. Its error wraps service.ErrDown,
	// service.ErrGone where the service does not know the sampler any more, or service.ErrRefused.
	Sample(ctx context.Context, r service.SampleRequest) (service.Sequence, error)
}

// FromSession is the service at which a session is.
func FromSession(s *service.Session) Service { return session{s} }

type session struct{ *service.Session }

// NewSampler implements [Service].
func (s session) NewSampler(ctx context.Context, path string) (Sampler, error) {
	sampler, err := s.Session.NewSampler(ctx, path)
	if err != nil {
		return nil, err
	}
	return sampler, nil
}
