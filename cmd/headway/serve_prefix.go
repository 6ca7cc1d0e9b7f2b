package main

// transferPrefix is where versions are fetched from, of control planes and receivers.
const transferPrefix = "/api/v1/transfer"

// objectPrefix begins the names of a run's versions in its object store.
const objectPrefix = "weights/"
