package plane

// TransferPrefix is where versions are fetched from, of control planes and receivers.
const TransferPrefix = "/api/v1/transfer"

// ObjectPrefix begins the names of a run's versions in its object store.
const ObjectPrefix = "weights/"
