package jetstream

import "github.com/nats-io/nats.go/jetstream"

// Rights are the subjects to which a server has to let a cell of a run publish, and those that the cell subscribes to. A link uses
// no others. They have wildcards of NATS.
func Rights(run, cell string) (publish, subscribe []string) {
	n := namesOf(run)
	publish = []string{n.cellSubject(cell), n.dataSubject, n.turnSubject + ".*.*.*." + cell, "$KV." + n.bucket + "." + cellKeys + cell}
	for _, call := range []string{
		"STREAM.INFO." + n.log, "STREAM.INFO." + n.data, "STREAM.INFO." + n.turns, "STREAM.INFO.KV_" + n.bucket, "STREAM.NAMES",
		"STREAM.MSG.GET." + n.log, "STREAM.MSG.GET." + n.head, "STREAM.MSG.GET." + n.turns, "STREAM.MSG.DELETE." + n.turns,
		"CONSUMER.CREATE." + n.log + ".>", "CONSUMER.MSG.NEXT." + n.log + ".*", "CONSUMER.DELETE." + n.log + ".*",
	} {
		publish = append(publish, jetstream.DefaultAPIPrefix+call)
	}
	return publish, []string{n.inbox(cell) + ".>"}
}

// cellSubject is by which a cell speaks to the writer.
func (n *names) cellSubject(cell string) string { return n.cells + "." + cell }

// inbox begins the subjects of answers to a cell, so that no other may hear them.
func (n *names) inbox(cell string) string { return "_INBOX." + n.cellSubject(cell) }
