/** What moves bytes: one store for each tier, and the engine between them. */

import '../requireNode.ts';

export { type ArenaFacts, type ArenaOptions, HostArena, startsAtPage, tableMemory } from './arena/index.ts';
export * from './engine/index.ts';
export * from './file/index.ts';
export * from './memory/index.ts';
export * from './webgpu/index.ts';
