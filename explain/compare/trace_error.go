package compare

import (
	"errors"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
)

// Torn reports whether a trace ends in the middle of a line.
func Torn(err error) bool {
	var at *trace.Error
	return errors.As(err, &at) && at.Torn
}

// TraceError says what can be done about a trace that cannot be replayed.
func TraceError(path string, err error) error {
	switch {
	case errors.Is(err, trace.ErrNoTrace):
		return failure.Usage("name a run's directory, or its "+trace.FileName, "%s: %w", path, err)
	case errors.Is(err, trace.ErrEmpty):
		return failure.Run("the run ended before its first step: start it anew, or name another", "%s: %w", path, err)
	case errors.Is(err, replay.ErrIncomplete):
		return failure.Run("headway run --resume goes on with an interrupted run", "%s: %w", path, err)
	case Torn(err):
		return failure.Run("headway run --resume cuts the torn line off and goes on", "%s: %w", path, err)
	}
	return failure.Run("restore the file from a copy; nothing after that place can be trusted", "%s: %w", path, err)
}
