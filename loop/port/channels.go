package port

import (
	"errors"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
)

// Rows is what one call of an engine says of a side channel, beside tokens and log-probs.
type Rows struct {
	channel.Header
	// Start is the first row: of passes from the beginning of the prompt, of other alignments from that of the response.
	Start int
	// Count is the number of rows, at least 1.
	Count int
	// First is how many tokens stood before the first that the call sampled: the prompt's, and those of the response so far.
	First int
	// Data has the rows back to back. Those of a ragged channel begin as [channel.AppendLengths] says. It is valid during the
	// call only.
	Data []byte
}

// GroupMedia names what holds the media of a group in a store of [Blobs], as if it were one more attempt. Its blobs stay as long as
// the group has a payload, and go with [Store.Forget].
func GroupMedia(group loop.GroupID) RolloutID { return RolloutID{Group: group, Sample: mediaSample} }

// mediaSample is the number of a sample that no group has.
const mediaSample = -1

// OfGroup reports whether a blob belongs to its group as a whole, as [GroupMedia] does.
func (id RolloutID) OfGroup() bool { return id.Sample == mediaSample }

// Seer is implemented by engines that take media. One without it is never handed any.
type Seer interface {
	// Sees reports whether requests may have media of a modality; an error says why not and wraps ErrMedia.
	Sees(modality string) error
}

// ErrMedia is wrapped by the error of an engine that cannot take the media of a request. Left out, they would be missing
// from what the policy sees, and nothing would tell.
var ErrMedia = errors.New("the engine takes no media")

// Blobs is implemented by stores that keep the rows of side channels beside the samples, as blobs. A blob belongs to an
// attempt, and goes when [Store.Forget], [Store.Discard] and [Store.Retain] say that the attempt is no longer needed.
// All methods are safe for concurrent use, also beside those of the Store.
type Blobs interface {
	// PutBlob keeps a blob under a number that the attempt has not used. It is durable when PutBlob returns. An error
	// that wraps ErrNoSpace has kept nothing.
	PutBlob(id RolloutID, number int32, data []byte) error
	// ReadBlob fills dst with the blob's bytes from an offset on, as they were put. The error wraps ErrNoBlob where the
	// blob, or some of the bytes, are not there. It wraps ErrBlobDamaged for bytes that do not verify.
	ReadBlob(id RolloutID, number int32, offset int64, dst []byte) error
}

// Referring is implemented by stores of cells, whose writer is another process. PutReferred is PutSample, and returns the
// reference by which the writer finds the payload. With an error it is of what was put without a payload, if anything was.
type Referring interface {
	PutReferred(s Sample) (reference string, err error)
}

// Referred is implemented by stores whose payloads other processes put too. Refer takes the reference of one that is durable, as if
// PutSample and PutBlob had put what it names. It may come more than once. An error that wraps ErrReference is the fault of the cell
// that says so, and the reference changes nothing. With any other it may be said again. All methods are safe for concurrent use.
type Referred interface {
	Refer(cell string, id RolloutID, reference string) error
}

// ErrReference is wrapped by the error of a reference that is none, or that names what its cell has not put for that payload.
var ErrReference = errors.New("it cannot be the cell's reference of that payload")

// ErrNoBlob is wrapped by the error of a blob, or of bytes of one, that are not there.
var ErrNoBlob = errors.New("no such blob in the store")

// ErrBlobDamaged is wrapped by the error of a blob whose bytes do not verify.
var ErrBlobDamaged = errors.New("the blob does not verify")
