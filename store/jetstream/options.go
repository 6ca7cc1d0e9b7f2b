package jetstream

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Defaults of Options.
const (
	// LogBytesMaxDefault bounds the event log.
	LogBytesMaxDefault = 1 << 30
	// PayloadBytesMaxDefault bounds the payloads.
	PayloadBytesMaxDefault = 8 << 30
	// CacheBytesDefault bounds the payloads that are in memory too.
	CacheBytesDefault = 128 << 20
	// WriterTTLDefault is how long a writer's lease lasts.
	WriterTTLDefault = 5 * time.Second
	// FreeBytesMinDefault is what is left free on the disk of an embedded server.
	FreeBytesMinDefault = 64 << 20
)

// Options of a store. Run, and one of URL and Dir, must be set.
type Options struct {
	// URL is a cluster's address, or several with commas between them. Empty: a server
	// inside this process, which keeps its files in Dir.
	URL string
	// Credentials is a .creds file for URL; empty for none.
	Credentials string
	// TLSCA, TLSCert and TLSKey are PEM files for URL; empty for none.
	TLSCA, TLSCert, TLSKey string
	// Dir is the embedded server's directory, made if it is missing. One process at a time has it.
	Dir string
	// Listen is the address, HOST:PORT, at which an embedded server takes in cells of the run, over TLS; empty opens no port.
	// Cells has, for the name of each, the file that is written for it: the server's certificate and the cell's secret.
	Listen string
	Cells  map[string]string
	// CellFile is such a file, for the Link of a cell whose URL is of a server that listens; empty for other servers.
	CellFile string
	// Run names the run. Stores of one cluster with the same name are one run's.
	Run string
	// Replicas of every stream; 0 means 1.
	Replicas int
	// LogBytesMax bounds the event log, PayloadBytesMax the payloads of live groups, both
	// as the server counts them; 0 means their defaults.
	LogBytesMax, PayloadBytesMax int64
	// CacheBytes is the most that is kept in memory of payloads that were put and not forgotten.
	// Reading those need not ask the server. 0 means CacheBytesDefault, negative none.
	CacheBytes int64
	// WriterTTL is how long a writer may go without renewing its lease before a standby takes
	// over; 0 means WriterTTLDefault.
	WriterTTL time.Duration
	// Always waits for the disk on every write, so that a promised write survives a loss of power
	// too. A cluster decides that for itself: with URL this has no effect.
	Always bool
	// TracePath is the file that mirrors the log; empty for no mirror.
	TracePath string
	// CellTurns has a stream made for the turns of cells in other processes. It takes up to a quarter of PayloadBytesMax more.
	CellTurns bool
	// FreeBytesMin is what an embedded server's disk must have left for a write to be
	// begun; 0 means FreeBytesMinDefault, negative turns the check off.
	FreeBytesMin int64
	// Logf is told of events beside the calls, by several goroutines; nil tells no one.
	Logf func(format string, args ...any)
}

// WithDefaults returns a copy in which every zero that stands for a default is replaced by it.
func (o Options) WithDefaults() Options {
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.LogBytesMax = cmp.Or(o.LogBytesMax, LogBytesMaxDefault)
	o.PayloadBytesMax = cmp.Or(o.PayloadBytesMax, PayloadBytesMaxDefault)
	o.CacheBytes = cmp.Or(o.CacheBytes, CacheBytesDefault)
	o.WriterTTL = cmp.Or(o.WriterTTL, WriterTTLDefault)
	o.FreeBytesMin = cmp.Or(o.FreeBytesMin, FreeBytesMinDefault)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

// Validate reports what cannot be.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("store: "+format, args...))
		}
	}
	check(o.Run != "", "Run is empty, want the run's name")
	check((o.URL == "") != (o.Dir == ""), "URL is %q and Dir %q, want one of them: a cluster, or an embedded server's directory", o.URL, o.Dir)
	check(o.Listen == "" || o.Dir != "", "Listen is %q without Dir, want an embedded server's directory", o.Listen)
	check(o.Replicas >= 0 && o.Replicas <= 5, "Replicas is %d, want 1 to 5", o.Replicas)
	check(o.URL != "" || o.Replicas <= 1, "Replicas is %d with the one server inside this process, want 1", o.Replicas)
	check(o.LogBytesMax >= 0 && o.PayloadBytesMax >= 0, "LogBytesMax is %d and PayloadBytesMax %d, want neither negative", o.LogBytesMax, o.PayloadBytesMax)
	check(o.WriterTTL >= 0, "WriterTTL is %v, want a duration", o.WriterTTL)
	check((o.TLSCert == "") == (o.TLSKey == ""), "TLSCert is %q and TLSKey %q, want both or neither", o.TLSCert, o.TLSKey)
	return errors.Join(errs...)
}
