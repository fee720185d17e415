/** Text to tokens and back: tokenizer, chat template, and answers that come token by token. */

export {
  type ChatMessage,
  ChatTemplate,
  callMarks,
  type TemplateCall,
  type TemplateTool,
} from './chatTemplate.ts';
export { type Decoder, Detokenizer } from './detokenizer.ts';
export { StopStrings } from './stopStrings.ts';
export { overlap, type TextStream } from './tokenDecoder.ts';
export { TextTokenizer } from './tokenizer.ts';
