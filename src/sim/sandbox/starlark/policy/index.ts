/** Starlark behind the interface that all languages of policies share. */

export { StarlarkPolicy } from './starlarkPolicy.ts';
