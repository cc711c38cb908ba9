-- An ACP adapter for CodeCompanion: `adapter = "chatlane"` of a chat uses it.
require("codecompanion").setup({
  adapters = {
    acp = {
      chatlane = function()
        local helpers = require("codecompanion.adapters.acp.helpers")
        return {
          name = "chatlane",
          formatted_name = "chatlane",
          type = "acp",
          roles = { llm = "assistant", user = "user" },
          commands = { default = { "chatlane", "acp", "--nats", "nats://127.0.0.1:4222" } },
          defaults = { mcpServers = {}, timeout = 20000 },
          parameters = {
            protocolVersion = 1,
            clientCapabilities = { fs = { readTextFile = false, writeTextFile = false } },
            clientInfo = { name = "CodeCompanion.nvim", version = "1.0.0" },
          },
          handlers = {
            setup = function() return true end,
            form_messages = function(self, messages, capabilities)
              return helpers.form_messages(self, messages, capabilities)
            end,
            on_exit = function() end,
          },
        }
      end,
    },
  },
})
