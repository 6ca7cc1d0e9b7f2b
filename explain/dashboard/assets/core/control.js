// Settings of a controller as the pages print them. What it does is said by the program.

/** A setting's value, with as many digits as say something. @param {number} value */
export function settingValue(value) { return String(Number(value.toPrecision(4))); }

/** A setting's name. @param {string} name */
export function settingName(name) { return name.replaceAll("_", " "); }
