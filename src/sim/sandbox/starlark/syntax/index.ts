/** From the text of a program to a tree whose names are resolved and whose steps are priced. */

export type * from './ast.ts';
export { branchCost, chargeFunction } from './charges.ts';
export { parse } from './parser/parser.ts';
export { childrenOf, resolve } from './resolver.ts';
