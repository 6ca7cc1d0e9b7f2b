// Where each track is on the screen: bands from top to bottom, grouped by the rows of a dependency view (what makes
// rollouts, what waits, what trains). An engine is folded into one band of thin lines, or unfolded into its slots.

/**
 * @typedef {{id: number, name: string, kind: string, row: string, group: string}} Track
 * @typedef {object} Band
 * @property {number[]} rows rows of the raster, from top to bottom
 * @property {number} y
 * @property {number} height
 * @property {string} name
 * @property {Track[]} tracks
 * @property {string} row
 * @property {string} group what it folds into, "" where it does not fold
 *
 * @typedef {object} Heading
 * @property {number} y
 * @property {number} height
 * @property {string} name
 * @property {string} group "" for a row's own heading
 * @property {boolean} folded
 * @property {number} count
 *
 * @typedef {object} Layout
 * @property {Band[]} bands
 * @property {Heading[]} headings
 * @property {Int32Array} rowOf row of the raster by track id
 * @property {number} rows
 * @property {number} height
 */

/** @type {Record<string, string>} */
const ROW_NAMES = { rollout: "Rollouts", queue: "Queue", train: "Training" };
const SECTION = 18, SLOT = 13, FOLDED_LEAST = 16, FOLDED_MOST = 168, FOLDED_ALL = 300, SPACE = 3;

/**
 * @param {Track[]} tracks in the order of the screen
 * @param {Set<string>} folded groups
 * @returns {Layout}
 */
export function layOut(tracks, folded) {
  const most = tracks.reduce((id, t) => Math.max(id, t.id), -1);
  /** @type {Layout} */ const layout = { bands: [], headings: [], rowOf: new Int32Array(most + 1).fill(-1), rows: tracks.length, height: 0 };
  tracks.forEach((track, row) => (layout.rowOf[track.id] = row));
  for (const row of ["rollout", "queue", "train"]) {
    const here = tracks.filter((t) => t.row === row);
    if (here.length === 0) continue;
    layout.headings.push({ y: layout.height, height: SECTION, name: ROW_NAMES[row], group: "", folded: false, count: here.length });
    layout.height += SECTION;
    const groups = byGroup(here);
    for (const group of groups) place(layout, group, folded, groups.length);
  }
  return layout;
}

/** Tracks of one group that stand together. */
function byGroup(/** @type {Track[]} */ tracks) {
  const groups = [];
  for (const track of tracks) {
    const last = groups[groups.length - 1];
    if (last && track.group !== "" && last[0].group === track.group) last.push(track);
    else groups.push([track]);
  }
  return groups;
}

/** How many of its kind a group has: an engine's slots, without the row of its weights. */
function members(/** @type {Track[]} */ tracks) { return tracks.filter((t) => t.kind === "slot").length || tracks.length; }

function place(/** @type {Layout} */ layout, /** @type {Track[]} */ tracks, /** @type {Set<string>} */ folded, /** @type {number} */ groups) {
  const [{ group, row }] = tracks;
  const rowsOf = (/** @type {Track[]} */ some) => some.map((/** @type {Track} */ t) => layout.rowOf[t.id]);
  if (tracks.length > 1 && folded.has(group)) {
    const most = Math.max(FOLDED_LEAST, Math.min(FOLDED_MOST, FOLDED_ALL / groups));
    const height = Math.min(most, Math.max(FOLDED_LEAST, tracks.length * 3));
    layout.headings.push({ y: layout.height, height, name: group, group, folded: true, count: members(tracks) });
    layout.bands.push({ rows: rowsOf(tracks), y: layout.height, height, name: group, tracks, row, group });
    layout.height += height + SPACE;
    return;
  }
  if (tracks.length > 1) {
    layout.headings.push({ y: layout.height, height: SLOT, name: group, group, folded: false, count: members(tracks) });
    layout.height += SLOT + 1;
  }
  const height = row === "rollout" || tracks.length > 1 ? SLOT : FOLDED_LEAST;
  for (const track of tracks) {
    layout.bands.push({ rows: rowsOf([track]), y: layout.height, height, name: track.name, tracks: [track], row, group: tracks.length > 1 ? group : "" });
    layout.height += height + 1;
  }
  layout.height += SPACE;
}

/** The band and the track at a height, undefined for none. @param {Layout} layout */
export function trackAt(layout, /** @type {number} */ y) {
  const band = layout.bands.find((b) => y >= b.y && y < b.y + b.height);
  if (!band) return undefined;
  const i = Math.min(band.tracks.length - 1, Math.floor(((y - band.y) * band.tracks.length) / band.height));
  return { band, track: band.tracks[i] };
}

/** Where a track is: its top and its height. @param {Layout} layout */
export function placeOf(layout, /** @type {number} */ id) {
  for (const band of layout.bands) {
    const i = band.tracks.findIndex((t) => t.id === id);
    if (i < 0) continue;
    const height = band.height / band.tracks.length;
    return { y: band.y + i * height, height };
  }
  return undefined;
}
