/** Names that Python, JavaScript and C know and Starlark does not, each with what to write instead. */

const mathNames = ['ceil', 'exp', 'fabs', 'floor', 'log', 'pi', 'pow', 'sqrt'];

const remedies: Readonly<Record<string, string>> = {
  null: 'Write None',
  undefined: 'Write None',
  nil: 'Write None',
  print: 'A policy prints nothing: remove it',
  console: 'A policy prints nothing: remove it',
  sum: 'Add up in a loop',
  round: 'Write math.round(x)',
  set: 'Use a dict with True for each member',
  map: 'Write [f(x) for x in items]',
  filter: 'Write [x for x in items if f(x)]',
  isinstance: 'Compare type(x) with a text, as "int"',
  random: 'A policy has no chance: decide by what it is given',
  time: 'A policy has no clock: read nowUs',
  datetime: 'A policy has no clock: read nowUs',
  np: 'Nothing can be imported: use math and lists',
  numpy: 'Nothing can be imported: use math and lists',
  Math: 'Write math',
  this: 'Functions are no methods: pass what they need',
  self: 'Functions are no methods: pass what they need',
  const: 'Assign without it: x = 1',
  let: 'Assign without it: x = 1',
  var: 'Assign without it: x = 1',
  function: 'Write def name(...):',
  ...Object.fromEntries(mathNames.map((name) => [name, `Write math.${name}`])),
};

export function remedyFor(name: string): string | undefined {
  return Object.hasOwn(remedies, name) ? remedies[name] : undefined;
}
