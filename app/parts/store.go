package parts

import (
	"path/filepath"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/store/jetstream"
)

const cellsDir = "cells"

// CellDir is the directory of a cell of a run, in the run's.
func CellDir(dir, cell string) string { return filepath.Join(dir, cellsDir, cell) }

// cellFile is by which a cell enters the NATS server of its control plane, in the cell's directory.
const cellFile = "nats.pem"

// Store says where the NATS servers of a run are, for the processes of its control plane: nats is the directory of one inside it.
// The run is called as its directory dir is.
func Store(cfg config.Config, dir, nats string) jetstream.Options {
	n := cfg.Store.NATS
	o := jetstream.Options{Run: filepath.Base(dir)}
	if !n.Inside() {
		return servers(o, n)
	}
	o.Dir, o.Listen = nats, n.Listen
	if n.Listen != "" {
		o.Cells = map[string]string{}
		for _, cell := range cfg.Cells() {
			o.Cells[cell] = filepath.Join(CellDir(dir, cell), cellFile)
		}
	}
	return o
}

// CellStore says where they are for a cell.
func CellStore(cfg config.Config, dir, cell string) jetstream.Options {
	o := servers(jetstream.Options{Run: filepath.Base(dir)}, cfg.Store.NATS)
	if cfg.Store.NATS.Inside() {
		o.CellFile = filepath.Join(CellDir(dir, cell), cellFile)
	}
	return o
}

// servers adds how those of an address are reached.
func servers(o jetstream.Options, n config.NATS) jetstream.Options {
	o.URL, o.Credentials, o.TLSCA, o.TLSCert, o.TLSKey = n.URL, n.Credentials, n.TLSCA, n.TLSCert, n.TLSKey
	return o
}
