/** Names of codes: logs, tables and messages show a code of an enumeration by the name of its constant, in camelCase. */

type CamelCase<Name extends string> = Name extends `${infer Head}_${infer Rest}`
  ? `${Lowercase<Head>}${Capitalize<CamelCase<Rest>>}`
  : Lowercase<Name>;
export type CodeName<Codes> = CamelCase<keyof Codes & string>;

/** The names in the order of the codes, which count from 0: `TIMED_OUT: 3` makes `timedOut` the fourth. */
export function codeNames<Codes extends Readonly<Record<string, number>>>(
  codes: Codes,
): readonly CodeName<Codes>[] {
  const names: CodeName<Codes>[] = [];
  for (const [constant, code] of Object.entries(codes)) {
    names[code] = constant
      .toLowerCase()
      .replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()) as CodeName<Codes>;
  }
  return names;
}
