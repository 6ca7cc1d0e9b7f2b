package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNoMessage is what a sequence or subject without a message is answered with.
var errNoMessage = errors.New("no such message")

// message is one that was read.
type message struct {
	seq    uint64
	header nats.Header
	data   []byte
}

// leaderGet reads a message of a stream from its leader, which has all that was acknowledged.
func (s *Store) leaderGet(ctx context.Context, stream string, seq uint64) (message, error) {
	return s.leaderRequest(ctx, stream, fmt.Sprintf(`{"seq":%d}`, seq))
}

// leaderLast reads the last message of a subject from the stream's leader.
func (s *Store) leaderLast(ctx context.Context, stream, subject string) (message, error) {
	return s.leaderRequest(ctx, stream, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
}

// leaderReply is the answer of the server's message request.
type leaderReply struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Sequence uint64 `json:"seq"`
		Header   []byte `json:"hdrs"`
		Data     []byte `json:"data"`
	} `json:"message"`
}

func (s *Store) leaderRequest(ctx context.Context, stream, body string) (message, error) {
	r, err := s.askLeader(ctx, "GET."+stream, body)
	if err != nil {
		return message{}, err
	}
	switch {
	case r.Error != nil && (r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound || r.Error.Code == 404):
		return message{}, errNoMessage
	case r.Error != nil:
		return message{}, r.Error
	case r.Message == nil:
		return message{}, errNoMessage
	}
	m := message{seq: r.Message.Sequence, data: r.Message.Data}
	if len(r.Message.Header) > 0 {
		if m.header, err = nats.DecodeHeadersMsg(r.Message.Header); err != nil {
			return message{}, fmt.Errorf("store: message %d of %s: %w: %w", m.seq, stream, err, errDamaged)
		}
	}
	return m, nil
}

// askLeader sends a request about messages of a stream to its leader.
func (s *Store) askLeader(ctx context.Context, call, body string) (r leaderReply, err error) {
	reply, err := s.control.RequestWithContext(ctx, "$JS.API.STREAM.MSG."+call, []byte(body))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return r, fmt.Errorf("store: the server's answer: %w", err)
	}
	return r, nil
}

// errorNoSequence is the server's word that a stream has no message of a sequence.
const errorNoSequence = 10043

// deleteMessage deletes a message of a stream. One that is gone is no error. With an error it may be there, and again after the
// server has begun anew.
func (s *Store) deleteMessage(ctx context.Context, stream string, seq uint64) error {
	r, err := s.askLeader(ctx, "DELETE."+stream, fmt.Sprintf(`{"seq":%d,"no_erase":true}`, seq))
	if err != nil || r.Error == nil || r.Error.ErrorCode == errorNoSequence || outside(r.Error) {
		return err
	}
	return r.Error
}

// outside reports whether a server deleted nothing because the message would be behind the last of the stream, or before the
// first. It says both with the code of a full disk.
func outside(e *jetstream.APIError) bool {
	return e.ErrorCode == errorNotDeleted &&
		(strings.HasSuffix(e.Description, server.ErrStoreEOF.Error()) || strings.HasSuffix(e.Description, server.ErrStoreMsgNotFound.Error()))
}

// headerChunks is on every chunk of what readChunks reads: "COUNT BYTES CHECKSUM".
const headerChunks = "Headway-Chunks"

// writeChunks replaces what is kept under a subject: SUBJECT.0 and so on, the last chunk
// written at last. What is not whole does not verify.
func (s *Store) writeChunks(ctx context.Context, subject string, body []byte) error {
	limit := min(s.chunkBytes(), 1<<20)
	count := max(1, (len(body)+limit-1)/limit)
	says := fmt.Sprintf("%d %d %08x", count, len(body), crc32.Checksum(body, castagnoli))
	for i := range count {
		m := nats.NewMsg(subject + "." + strconv.Itoa(i))
		m.Header[headerChunks] = []string{says}
		m.Data = body[i*limit : min((i+1)*limit, len(body))]
		if err := s.publishChunk(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// publishChunk stores a chunk; one that is stored twice does no harm. It gives up where the server has no stream for
// it.
func (s *Store) publishChunk(ctx context.Context, m *nats.Msg) error {
	if err := s.disk.room(len(m.Data)); err != nil {
		return err
	}
	return s.again(ctx, func(ctx context.Context) error {
		_, err := s.js.PublishMsg(ctx, m)
		if gone := s.gone(ctx, m.Subject, err); gone != nil {
			return gone
		}
		return err
	})
}

// goneWait is how long a publish that nobody answered waits for a word on its stream before it is tried again.
const goneWait = time.Second

// gone is the server's word, after a publish that nobody answered, that it has no stream for the subject. It is nil where the
// server has one, or does not answer either.
func (s *Store) gone(ctx context.Context, subject string, err error) error {
	if !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	if _, err = s.js.StreamNameBySubject(ctx, subject); errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// errDamaged says that something is not, or not wholly, what was written.
var errDamaged = errors.New("damaged: a part is missing or its checksum does not match")

// errTorn is errDamaged where the rest of the parts is missing.
var errTorn = fmt.Errorf("a part is missing, because the process ended while it was written or the disk lost it: %w", errDamaged)

// readChunks reads from a stream what writeChunks wrote, and verifies it.
func (s *Store) readChunks(ctx context.Context, stream, subject string) ([]byte, error) {
	var body []byte
	var says string
	for i, count := 0, 1; i < count; i++ {
		m, err := s.chunk(ctx, stream, subject+"."+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		if i == 0 {
			says = m.header.Get(headerChunks)
			if _, err := fmt.Sscanf(says, "%d", &count); err != nil || count < 1 {
				return nil, errDamaged
			}
		}
		if m.header.Get(headerChunks) != says {
			return nil, errDamaged
		}
		body = append(body, m.data...)
		if i == count-1 && says != fmt.Sprintf("%d %d %08x", count, len(body), crc32.Checksum(body, castagnoli)) {
			return nil, errDamaged
		}
	}
	return body, nil
}

func (s *Store) chunk(ctx context.Context, stream, subject string) (m message, err error) {
	err = s.again(ctx, func(ctx context.Context) (err error) {
		m, err = s.leaderLast(ctx, stream, subject)
		return err
	})
	if errors.Is(err, errNoMessage) {
		err = errTorn
	}
	return m, err
}

// subjectsOf lists the subjects of a stream that begin with a prefix, without it, and the sequence of the stream's
// last message at that time.
func (s *Store) subjectsOf(ctx context.Context, stream jetstream.Stream, prefix string) (out []string, last uint64, err error) {
	err = s.again(ctx, func(ctx context.Context) error {
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+".>"))
		if err != nil {
			return err
		}
		out, last = nil, info.State.LastSeq
		for subject := range info.State.Subjects {
			out = append(out, strings.TrimPrefix(subject, prefix+"."))
		}
		return nil
	})
	return out, last, err
}
