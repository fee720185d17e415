/**
 * Files that a caller gives as texts: what reads files finds them under their names, before those of the disk. They hold
 * during one synchronous call, so that nothing of them stays.
 */

let given: ReadonlyMap<string, string> = new Map();

/** The text that was given under that name. */
export function givenFile(file: string | URL): string | undefined {
  return given.size === 0 ? undefined : given.get(String(file).replace(/^\.\//, ''));
}

/** Runs `act` with these files: a text by its name. */
export function withGivenFiles<T>(files: Readonly<Record<string, string>>, act: () => T): T {
  const before = given;
  given = new Map(Object.entries(files));
  try {
    return act();
  } finally {
    given = before;
  }
}
